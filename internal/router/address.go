package router

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// address is a URL template, split where its query begins. Literal pieces are
// encoded and have $$ for a dollar sign, as in a Request.
type address struct {
	head  []piece
	query []queryPart
}

// queryPart is one pair of the query, or an expression {?…} or {&…} that makes
// any number of them.
type queryPart struct {
	// name is the decoded name of a literal pair, empty for an expression.
	name   string
	pieces []piece
}

// addressText says how far a URL template has been read.
type addressText struct {
	address
	inQuery bool
	// part is the query pair that is being read; nil between two.
	part []piece
	// closed says that an expression ended the part: only & may follow.
	closed bool
}

// splitAddress sorts the pieces of a url or path into path and query.
func splitAddress(pieces []piece) (address, error) {
	var a addressText
	for _, p := range pieces {
		var err error
		switch {
		case p.expr != nil:
			err = a.expression(p)
		case p.mark != nil:
			err = a.add(p)
		default:
			err = a.literal(p.literal)
		}
		if err != nil {
			return address{}, err
		}
	}
	a.endPart()
	return a.address, nil
}

func (a *addressText) literal(text string) error {
	if strings.Contains(text, "#") {
		return errors.New("a fragment (#…) is never sent: remove it, or write %23")
	}
	if problem := literalProblem(text); problem != "" {
		return errors.New(problem)
	}
	if !a.inQuery {
		path, query, found := strings.Cut(text, "?")
		if path != "" {
			a.head = append(a.head, literalPiece(path))
		}
		if !found {
			return nil
		}
		a.inQuery, text = true, query
	}
	for i, part := range strings.Split(text, "&") {
		if i > 0 {
			a.endPart()
		}
		if part == "" {
			continue
		}
		if err := a.add(literalPiece(part)); err != nil {
			return err
		}
	}
	return nil
}

func literalPiece(text string) piece { return piece{literal: escapeDollar(encodeURLText(text))} }

// add appends a piece to the path or to the current query pair.
func (a *addressText) add(p piece) error {
	switch {
	case !a.inQuery:
		a.head = append(a.head, p)
	case a.closed:
		return errors.New("after {?…} or {&…} the query goes on with & only")
	default:
		a.part = append(a.part, p)
	}
	return nil
}

func (a *addressText) expression(p piece) error {
	switch p.expr.operator {
	case 0:
		return a.add(p)
	case '/':
		if a.inQuery {
			return fmt.Errorf("%s stands in the query: a path ends where the query begins", p.expr.text)
		}
		return a.add(p)
	case '?':
		if a.inQuery {
			return fmt.Errorf("%s begins a second query: write {&…}", p.expr.text)
		}
	case '&':
		if !a.inQuery {
			return fmt.Errorf("%s continues a query that has not begun: write {?…}", p.expr.text)
		}
		if len(a.part) > 0 {
			a.endPart()
		}
	}
	a.inQuery, a.closed = true, true
	a.query = append(a.query, queryPart{pieces: []piece{p}})
	return nil
}

func (a *addressText) endPart() {
	a.closed = false
	if len(a.part) == 0 {
		return
	}
	a.query = append(a.query, queryPart{name: pairName(a.part), pieces: a.part})
	a.part = nil
}

// pairName is the decoded name of a query pair, empty when a template makes it.
func pairName(pieces []piece) string {
	var name strings.Builder
	for _, p := range pieces {
		switch {
		case p.expr != nil:
			return ""
		case p.mark != nil:
			name.WriteString(encodeValue(p.mark.value))
			continue
		}
		text, _, found := strings.Cut(strings.ReplaceAll(p.literal, "$$", "$"), "=")
		name.WriteString(text)
		if found {
			break
		}
	}
	return decodeName(name.String())
}

// decodeName decodes the name of a query pair as services do.
func decodeName(text string) string {
	name, _, _ := strings.Cut(text, "=")
	decoded, _ := decode(strings.ReplaceAll(name, "+", " "))
	return decoded
}

// markedNames are the names of the query parameters that the value of a mark at
// the end of a URL brings.
func markedNames(head []piece) []string {
	if len(head) == 0 || head[len(head)-1].mark == nil {
		return nil
	}
	_, query, found := strings.Cut(head[len(head)-1].mark.value, "?")
	if !found {
		return nil
	}
	var names []string
	for pair := range strings.SplitSeq(query, "&") {
		names = append(names, decodeName(pair))
	}
	return names
}

// checkBase checks a URL template that begins with scheme and host: what is
// fixed must be a good http URL, and no expression may touch scheme, host or
// port. Problems name no value of a mark.
func checkBase(head []piece) error {
	fixed, next := fixedText(head)
	if problem := markedProblem(head); problem != "" {
		return errors.New(problem)
	}
	scheme, rest, found := strings.Cut(fixed, "://")
	if !found || (!strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https")) {
		return errors.New("must begin with http:// or https:// and a host")
	}
	authority, ended := cutAuthority(rest)
	if next != nil && !ended && next.operator != '/' {
		return fmt.Errorf("%s touches the host: a template begins after the first / of the path", next.text)
	}
	if err := checkAuthority(scheme, authority); err != nil {
		return err
	}
	return checkSegments(head)
}

// fixedText is the literal beginning, marks filled in, and the expression that
// ends it.
func fixedText(head []piece) (string, *expression) {
	var fixed strings.Builder
	for _, p := range head {
		if p.expr != nil {
			return fixed.String(), p.expr
		}
		fixed.WriteString(plainText(p))
	}
	return fixed.String(), nil
}

// plainText is the text of a literal or mark as it is sent in a URL.
func plainText(p piece) string {
	if p.mark != nil {
		return encodeURLText(p.mark.value)
	}
	return strings.ReplaceAll(p.literal, "$$", "$")
}

// markedProblem checks what marks put into the path part of a URL.
func markedProblem(head []piece) string {
	for i, p := range head {
		if p.mark == nil {
			continue
		}
		value := p.mark.value
		switch {
		case strings.ContainsFunc(value, isControl):
			return "the value of " + showMark(p.mark.key) + " holds a line break or another control character"
		case strings.Contains(value, "#"):
			return "the value of " + showMark(p.mark.key) + " holds a fragment (#…)"
		case strings.Contains(value, "?") && i < len(head)-1:
			return "the value of " + showMark(p.mark.key) + " holds a query, so nothing can follow it in the path"
		}
		if _, ok := decode(value); !ok {
			return "the value of " + showMark(p.mark.key) + " holds a % that is not followed by two hexadecimal digits"
		}
	}
	return ""
}

func cutAuthority(rest string) (authority string, ended bool) {
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		return rest[:i], true
	}
	return rest, false
}

// checkAuthority lets net/url judge user, host and port, and repeats none of its
// text: it may hold a password.
func checkAuthority(scheme, authority string) error {
	host := authority[strings.LastIndexByte(authority, '@')+1:]
	u, err := url.Parse(scheme + "://" + authority + "/")
	if err != nil || u.Opaque != "" || u.Host != host || strings.ContainsAny(host, "\\%$ \"<>") || !isASCII(host) {
		return errors.New("bad host or port")
	}
	if u.Hostname() == "" {
		return errors.New("the host is missing")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return errors.New("the port must be a number from 1 to 65535")
		}
	}
	return nil
}

// checkSegments refuses dot segments that the file itself writes: services and
// proxies resolve them, each in its own way.
func checkSegments(head []piece) error {
	var text strings.Builder
	for _, p := range head {
		switch {
		case p.expr == nil:
			text.WriteString(plainText(p))
		case p.expr.operator == '/':
			text.WriteString("/x")
		default:
			text.WriteString("x")
		}
	}
	path, _, _ := strings.Cut(text.String(), "?")
	decoded, ok := decode(path)
	if !ok || leavesPath(decoded) {
		return errors.New("the path must not hold . or .. as a segment")
	}
	return nil
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= 0x80 }) < 0
}

func isControl(r rune) bool { return r < ' ' || (r >= 0x7f && r < 0xa0) }
