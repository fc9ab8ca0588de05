package forward

import (
	"crypto/rand"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// The headers of Standard Webhooks, under canonical names.
const (
	signedID   = "Webhook-Id"
	signedTime = "Webhook-Timestamp"
	signatures = "Webhook-Signature"
)

var errNoKey = errors.New("no secret to sign with")

// sign puts a signature with each of the keys over id, time and body.
func sign(header http.Header, keys [][]byte, id string, now time.Time, body []byte) error {
	if len(keys) == 0 {
		return errNoKey
	}
	signed := make([]string, len(keys))
	for i, key := range keys {
		signer, err := webhooks.NewWebhookRaw(key)
		if err != nil {
			return err
		}
		if signed[i], err = signer.Sign(id, now, body); err != nil {
			return err
		}
	}
	header[signedID] = []string{id}
	header[signedTime] = []string{strconv.FormatInt(now.Unix(), 10)}
	header[signatures] = []string{strings.Join(signed, " ")}
	return nil
}

// questionID is the webhook-id of a question about an earlier request. Each has
// its own: a receiver that knows the id of the call, or of a question before,
// would drop it as a repeat.
func questionID() string { return "recover_" + strings.ToLower(rand.Text()) }
