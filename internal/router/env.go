package router

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
)

// Env is where the values of ${VAR} come from.
type Env struct {
	Lookup func(name string) (value string, ok bool)
	// AllowUnset takes an unset ${VAR} as a warning: where a table is only
	// checked there may be no secrets.
	AllowUnset bool
}

// mark is a ${VAR} or ${VAR:-default} in a value. Its value is a secret: what
// is built and shown holds only the mark.
type mark struct {
	// key is what stands between ${ and } in a Request.
	key   string
	value string
	// unset says that there is no value, which only a table that is checked
	// without its environment may have.
	unset bool
}

// environment resolves the marks of a table and remembers their values.
type environment struct {
	env    Env
	values map[string]string
	// passwords are those that stand in URLs, secrets those of auth and sign.
	passwords []string
	secrets   []*secretSource
	// inTable are the secrets that stand in the table itself.
	inTable []literalSecret
	// changes counts the texts that secret files have had.
	changes atomic.Uint64
}

func newEnvironment(env Env) *environment {
	if env.Lookup == nil {
		env.Lookup = func(string) (string, bool) { return "", false }
	}
	return &environment{env: env, values: map[string]string{}}
}

// resolve looks a variable up; an empty one takes the default, as in a shell.
// ok is false when it is not set and has no default.
func (e *environment) resolve(name, fallback string, hasFallback bool) (m mark, ok bool) {
	value, set := e.env.Lookup(name)
	if hasFallback && value == "" {
		value, set = fallback, true
	}
	if !set {
		return mark{key: name, unset: true}, false
	}
	key := name
	if known, taken := e.values[name]; taken && known != value {
		// The same variable with another default gets a mark of its own, which
		// does not show the default.
		sum := sha256.Sum256([]byte(fallback))
		key = name + ":" + hex.EncodeToString(sum[:4])
	}
	e.values[key] = value
	return mark{key: key, value: value}, true
}

// withoutSlashSuffix ends the key of a mark whose value has lost its last slash.
const withoutSlashSuffix = ":/"

// withoutSlash is a piece of a URL without the slash at its end. A mark becomes
// another mark, with a value of its own.
func (e *environment) withoutSlash(p piece) piece {
	if p.mark == nil {
		p.literal = strings.TrimSuffix(p.literal, "/")
		return p
	}
	if value, found := strings.CutSuffix(p.mark.value, "/"); found {
		m := mark{key: p.mark.key + withoutSlashSuffix, value: value}
		e.values[m.key] = value
		p.mark = &m
	}
	return p
}

// originSuffix ends the key of a mark whose value is cut where the path begins.
const originSuffix = ":origin"

// origin is the beginning of a URL: scheme, user, host and port. A mark that goes
// on after them becomes another mark, with a value of its own.
func (e *environment) origin(head []piece) []piece {
	head = withPlaceholders(head)
	fixed, _ := fixedText(head)
	scheme, rest, _ := strings.Cut(fixed, "://")
	authority, _ := cutAuthority(rest)
	left := len(scheme) + len("://") + len(authority)
	var origin []piece
	for _, p := range head {
		if left <= 0 || p.expr != nil {
			break
		}
		text := plainText(p)
		switch {
		case len(text) <= left:
		case p.mark != nil:
			m := mark{key: p.mark.key + originSuffix, value: originOf(p.mark.value)}
			e.values[m.key] = m.value
			p.mark = &m
		default:
			p.literal = escapeDollar(text[:left])
		}
		left -= len(text)
		origin = append(origin, p)
	}
	return origin
}

// originOf cuts a URL, or what is left of one after its scheme, where its path or
// query begins.
func originOf(text string) string {
	start := 0
	if i := strings.Index(text, "://"); i >= 0 && !strings.ContainsAny(text[:i], "/?") {
		start = i + len("://")
	}
	if i := strings.IndexAny(text[start:], "/?"); i >= 0 {
		return text[:start+i]
	}
	return text
}

// hiddenUserinfo begins the marks of user and password that stand in a URL: no
// variable is called that.
const hiddenUserinfo = "@userinfo:"

// hideUserinfo puts marks in the place of user and password in a URL, so that
// no request that is kept or shown has them. path names the URL.
func (e *environment) hideUserinfo(path string, head []piece) []piece {
	fixed, _ := fixedText(head)
	scheme, rest, _ := strings.Cut(fixed, "://")
	authority, _ := cutAuthority(rest)
	size := strings.LastIndexByte(authority, '@')
	if size <= 0 {
		return head
	}
	start := len(scheme) + len("://")
	end := start + size
	e.rememberUserinfo(fixed[start:end])
	pieces, offset := make([]piece, 0, len(head)+2), 0
	for _, p := range head {
		text := ""
		if p.expr == nil {
			text = plainText(p)
		}
		low, high := min(max(0, start-offset), len(text)), min(max(0, end-offset), len(text))
		offset += len(text)
		if p.mark != nil || low >= high {
			pieces = append(pieces, p)
			continue
		}
		sum := sha256.Sum256([]byte(path + ":" + strconv.Itoa(len(pieces))))
		hidden := mark{key: hiddenUserinfo + hex.EncodeToString(sum[:4]), value: text[low:high]}
		e.values[hidden.key] = hidden.value
		pieces = append(pieces, piece{literal: escapeDollar(text[:low])}, piece{mark: &hidden}, piece{literal: escapeDollar(text[high:])})
	}
	return pieces
}

// rememberUserinfo keeps what is secret of the user and password in a URL.
func (e *environment) rememberUserinfo(userinfo string) {
	_, password, hasPassword := strings.Cut(userinfo, ":")
	if decoded, _ := decode(password); password != "" {
		e.passwords = append(e.passwords, password, decoded)
	}
	if password != "" || !hasPassword { // a user alone is a token
		e.passwords = append(e.passwords, userinfo)
	}
}

// value is what a mark in a Request stands for now. A request that was built
// under an earlier table may name a variable that this one does not use.
func (e *environment) value(key string) (string, error) {
	if value, ok := e.values[key]; ok {
		return value, nil
	}
	if base, cut := strings.CutSuffix(key, withoutSlashSuffix); cut {
		value, err := e.value(base)
		return strings.TrimSuffix(value, "/"), err
	}
	if base, cut := strings.CutSuffix(key, originSuffix); cut {
		value, err := e.value(base)
		return originOf(value), err
	}
	name, _, _ := strings.Cut(key, ":")
	if value, ok := e.values[name]; ok {
		return value, nil
	}
	if envName.MatchString(name) {
		if value, ok := e.env.Lookup(name); ok {
			return value, nil
		}
	}
	return "", fmt.Errorf("the variable %s of the request is not set", name)
}

// fill replaces the marks of a text in a Request by their values, each passed
// through encode, and $$ by a dollar sign.
func (e *environment) fill(text string, encode func(string) string) (string, error) {
	if strings.IndexByte(text, '$') < 0 {
		return text, nil
	}
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$")
		out.WriteString(before)
		switch {
		case !found:
			return out.String(), nil
		case strings.HasPrefix(rest, "{"):
			key, after, closed := strings.Cut(rest[1:], "}")
			if !closed {
				return "", errors.New("a mark of the request is not closed")
			}
			value, err := e.value(key)
			if err != nil {
				return "", err
			}
			out.WriteString(encode(value))
			text = after
		default:
			out.WriteByte('$')
			text = strings.TrimPrefix(rest, "$")
		}
	}
}

// escapeDollar writes a text so that fill gives it back unchanged.
func escapeDollar(text string) string { return strings.ReplaceAll(text, "$", "$$") }

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parseMark reads what stands between ${ and }.
func parseMark(inner string) (name, fallback string, hasFallback bool, err error) {
	name, fallback, hasFallback = strings.Cut(inner, ":-")
	if !envName.MatchString(name) {
		return "", "", false, fmt.Errorf("bad variable ${%s}: write ${NAME} or ${NAME:-default}, and $$ for a dollar sign", short(inner))
	}
	return name, fallback, hasFallback, nil
}

// short bounds a piece of the file that a message repeats. What may be a
// default, and so a secret, is cut off.
func short(text string) string {
	name, _, more := strings.Cut(text, ":")
	if more {
		return cut(name, maxQuoted) + ":…"
	}
	return cut(name, maxQuoted)
}
