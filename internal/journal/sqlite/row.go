package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"functionbridge/internal/journal"
)

// columnRead is the order in which rows are read.
const columnRead = columnList + ", erased"

// columnList is the order in which rows are written; a store that erases
// payloads adds whether this one is.
const columnList = "session_id, turn_id, call_id, function, arguments, idempotent, created_at, " + changing

// changing are the columns that a later write replaces.
const changing = "state, owner, generation, answered_at, submitted_at, confirmed_at, " +
	"success, content, failure, error, attempts, late_outcome, request, output, " +
	"fence, rev, sent_at, retry_at, reran, crashes"

// addRow adds a call's values in the order of columnList.
func (c *connection) addRow(call journal.Call) error {
	attempts, err := encodeAttempts(call.Attempts)
	if err != nil {
		return fmt.Errorf("encode attempts: %w", err)
	}
	late, err := encodeLate(call.LateOutcome)
	if err != nil {
		return fmt.Errorf("encode late outcome: %w", err)
	}
	o := call.Outcome
	c.add(call.SessionID, call.TurnID, call.CallID, call.Function, blob(call.Arguments), flag(call.Idempotent),
		micros(call.CreatedAt),
		string(call.State), c.owner, int64(call.Submissions), micros(call.AnsweredAt), micros(call.SubmittedAt),
		micros(call.ConfirmedAt),
		flag(o.Success), flag(o.Content), string(o.Failure), blob([]byte(o.Error)), attempts, late,
		blob(call.Request), blob([]byte(o.Output)),
		call.Fence, call.Rev, micros(call.SentAt), micros(call.RetryAt), flag(call.Reran), int64(call.Crashes))
	if c.erase {
		c.add(flag(call.Erased))
	}
	return nil
}

// scanner is *sql.Row or *sql.Rows.
type scanner interface{ Scan(dest ...any) error }

// scanCall reads a row in the order of columnRead.
func scanCall(row scanner) (journal.Call, error) {
	var (
		c                                     journal.Call
		created, answered, submitted, confirm int64
		sent, retry                           int64
		failed, attempts, late, output        []byte
	)
	err := row.Scan(&c.SessionID, &c.TurnID, &c.CallID, &c.Function, &c.Arguments, &c.Idempotent, &created,
		&c.State, &c.Owner, &c.Submissions, &answered, &submitted, &confirm,
		&c.Outcome.Success, &c.Outcome.Content, &c.Outcome.Failure, &failed, &attempts, &late,
		&c.Request, &output, &c.Fence, &c.Rev, &sent, &retry, &c.Reran, &c.Crashes, &c.Erased)
	if err != nil {
		return c, err
	}
	c.CreatedAt, c.AnsweredAt = fromMicros(created), fromMicros(answered)
	c.SubmittedAt, c.ConfirmedAt = fromMicros(submitted), fromMicros(confirm)
	c.SentAt, c.RetryAt = fromMicros(sent), fromMicros(retry)
	c.Outcome.Error, c.Outcome.Output = string(failed), string(output)
	if c.Attempts, err = decodeAttempts(attempts); err != nil {
		return c, fmt.Errorf("decode attempts: %w", err)
	}
	if c.LateOutcome, err = decodeLate(late); err != nil {
		return c, fmt.Errorf("decode late outcome: %w", err)
	}
	return c, nil
}

// blob is NULL for nothing, so that an empty value comes back as nil.
func blob(b []byte) driver.Value {
	if len(b) == 0 {
		return nil
	}
	return b
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// micros is a time as the tables hold it: microseconds since 1970 UTC, 0 for
// the zero time.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// attemptJSON is an attempt in the attempts column; times in microseconds.
type attemptJSON struct {
	StartedAt int64  `json:"started_at"`
	Duration  int64  `json:"duration_us"`
	Status    int    `json:"status,omitempty"`
	Error     string `json:"error,omitempty"`
	Recover   bool   `json:"recover,omitempty"`
}

func encodeAttempts(list []journal.Attempt) (driver.Value, error) {
	switch {
	case len(list) == 0:
		return nil, nil
	case len(list) == 1 && list[0].Error == "" && !list[0].Recover:
		return encodeAttempt(list[0]), nil // nearly every call; encoding/json takes ten times as long
	}
	out := make([]attemptJSON, len(list))
	for i, a := range list {
		out[i] = attemptJSON{micros(a.StartedAt), a.Duration.Microseconds(), a.Status, a.Error, a.Recover}
	}
	return json.Marshal(out)
}

func encodeAttempt(a journal.Attempt) []byte {
	b := append(make([]byte, 0, 80), `[{"started_at":`...)
	b = strconv.AppendInt(b, micros(a.StartedAt), 10)
	b = strconv.AppendInt(append(b, `,"duration_us":`...), a.Duration.Microseconds(), 10)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(a.Status), 10)
	return append(b, `}]`...)
}

func decodeAttempts(text []byte) ([]journal.Attempt, error) {
	if text == nil {
		return nil, nil
	}
	var list []attemptJSON
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	out := make([]journal.Attempt, len(list))
	for i, a := range list {
		out[i] = journal.Attempt{
			StartedAt: fromMicros(a.StartedAt),
			Duration:  time.Duration(a.Duration) * time.Microsecond,
			Status:    a.Status,
			Error:     a.Error,
			Recover:   a.Recover,
		}
	}
	return out, nil
}

// lateJSON is an outcome in the late_outcome column. The texts are base64, so
// that every byte comes back.
type lateJSON struct {
	Success bool         `json:"success"`
	Output  []byte       `json:"output,omitempty"`
	Content bool         `json:"content,omitempty"`
	Error   []byte       `json:"error,omitempty"`
	Failure journal.Kind `json:"failure,omitempty"`
}

func encodeLate(o *journal.Outcome) (driver.Value, error) {
	if o == nil {
		return nil, nil
	}
	return json.Marshal(lateJSON{o.Success, []byte(o.Output), o.Content, []byte(o.Error), o.Failure})
}

func decodeLate(text []byte) (*journal.Outcome, error) {
	if text == nil {
		return nil, nil
	}
	var l lateJSON
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, err
	}
	return &journal.Outcome{
		Success: l.Success, Output: string(l.Output), Content: l.Content, Error: string(l.Error), Failure: l.Failure,
	}, nil
}
