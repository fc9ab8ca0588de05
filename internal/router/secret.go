package router

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.yaml.in/yaml/v4"
)

// Secret is a text that is never shown: however it is printed, logged or encoded,
// it is [redacted]. It comes from the table, or from a file that is read again
// when it changed. The zero Secret is not set.
type Secret struct{ source *secretSource }

// secretSource is where the text of a secret comes from.
type secretSource struct {
	// name is the key of the table, such as upstreams.crm.auth.bearer_file.
	name string
	// shown is how the table may be shown: ${VAR}, or masked.
	shown string
	// text is that of a secret which stands in the table.
	text string
	// unset says that a part of text is missing, as in a table that is checked
	// without its environment.
	unset bool
	file  *watched[string]
	// others are the forms besides itself in which the text is sent.
	others func(text string) []string

	mu sync.Mutex
	// held are the texts that file has held lately, the last one last: a call that
	// is under way may still use an earlier one.
	held []string
}

// maxHeld bounds how many texts of a file are remembered.
const maxHeld = 4

// IsSet says that the table has this secret.
func (s Secret) IsSet() bool { return s.source != nil }

// Reveal returns the text. Its file is looked at again when that was a second ago
// or more. If the file cannot be used, the text is the last good one and the error
// says why, in words that can be logged: the text is good to use unless it is
// empty.
func (s Secret) Reveal() (string, error) {
	switch {
	case s.source == nil:
		return "", nil
	case s.source.file == nil:
		return s.source.text, nil
	}
	text, failed := s.source.file.get()
	return text, failed.named([]string{s.source.name})
}

// String is "[redacted]".
func (Secret) String() string { return masked }

// GoString is "[redacted]".
func (Secret) GoString() string { return masked }

// Format writes "[redacted]" for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, masked) }

// LogValue is "[redacted]".
func (Secret) LogValue() slog.Value { return slog.StringValue(masked) }

// MarshalText is "[redacted]".
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }

// MarshalJSON is "[redacted]", in quotes.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + masked + `"`), nil }

// show is how the table may show the secret.
func (s Secret) show() string {
	if s.source == nil {
		return ""
	}
	return s.source.shown
}

// values are the texts to keep from everybody, in every form.
func (s *secretSource) values() []string {
	s.mu.Lock()
	texts := append(slices.Clone(s.held), s.text)
	s.mu.Unlock()
	values := slices.Clone(texts)
	for _, text := range texts {
		if text != "" && s.others != nil {
			values = append(values, s.others(text)...)
		}
	}
	return values
}

// readFile makes the secret one of a file. check says why a text cannot be used,
// or is empty; changed counts the new texts of all files.
func (s *secretSource) readFile(path string, check func(string) string, changed *atomic.Uint64) (failed fileErrors) {
	s.file, failed = watch([]string{path}, func(contents [][]byte) (string, fileErrors) {
		text := strings.TrimRight(string(contents[0]), "\r\n")
		if problem := check(text); problem != "" {
			return "", fileErrors{{problem: "the secret in the file " + problem}}
		}
		s.mu.Lock()
		s.held = append(s.held, text)
		s.held = s.held[max(0, len(s.held)-maxHeld):]
		s.mu.Unlock()
		changed.Add(1)
		return text, nil
	})
	return failed
}

// plainValue is a value in which ${VAR} and $$ have a meaning and braces none.
type plainValue struct {
	text string
	// marked says that a part of it came from ${VAR}, unset that a part is missing.
	marked, unset bool
	// shown has ${VAR} for what came from there.
	shown string
	// literal says that a part stands in the table itself.
	literal bool
}

// plain reads such a value. Numbers and booleans count as the text that they are
// written as. No message holds a part of it.
func (r *reader) plain(f field, env *environment) (v plainValue, ok bool) {
	if f.value.Kind != yaml.ScalarNode || f.value.Tag == "!!null" || !plainTag(f.value) {
		r.wrongf(f, "must be text, not %s", kindOf(f.value))
		return v, false
	}
	pieces, err := scanMarks(f.value.Value)
	if err != nil {
		r.wrongf(f, "%s", err)
		return v, false
	}
	ok = true
	var text, shown strings.Builder
	for _, p := range pieces {
		if !p.isMark {
			text.WriteString(p.literal)
			shown.WriteString(p.literal)
			v.literal = true
			continue
		}
		m, good := r.mark(f, p.variable, env)
		ok = ok && good
		if m != nil {
			v.marked, v.unset = true, v.unset || m.unset
			text.WriteString(m.value)
			shown.WriteString(showMark(m.key))
		}
	}
	if len(bareNames(f.value.Value)) > 0 {
		r.problems.warnf(r.at(f.value), "%s: a dollar sign is sent as it stands; write ${NAME} for a variable, or $$", f.path)
	}
	v.text, v.shown = text.String(), shown.String()
	return v, ok
}

// scanMarks is scan for values without templates.
func scanMarks(text string) ([]rawPiece, error) {
	var pieces []rawPiece
	for text != "" {
		i := strings.IndexByte(text, '$')
		if i < 0 {
			i = len(text)
		}
		p, size := rawPiece{literal: text[:i]}, i
		if i == 0 {
			var err error
			if p, size, err = scanPiece(text); err != nil {
				return nil, err
			}
		}
		pieces = append(pieces, p)
		text = text[size:]
	}
	return pieces, nil
}

// filePath reads the path of a file, empty when it is not known, and how it may be
// shown. A relative one begins at the directory of the table.
func (r *reader) filePath(f field, env *environment) (path, shown string) {
	if _, ok := r.text(f); !ok {
		return "", ""
	}
	v, ok := r.plain(f, env)
	switch {
	case !ok || v.unset:
		return "", v.shown
	case credentialProblem(v.text) != "":
		r.wrongf(f, "%s", credentialProblem(v.text))
		return "", v.shown
	case filepath.IsAbs(v.text):
		return v.text, v.shown
	}
	return filepath.Join(filepath.Dir(r.file), v.text), v.shown
}

// reportFile tells what is wrong with a file. Where a table is only checked, there
// may be no files with secrets.
func (r *reader) reportFile(f field, e fileError, env *environment) {
	if e.unread && env.env.AllowUnset {
		r.problems.warnf(r.at(f.value), "%s: %s", f.path, e.problem)
		return
	}
	r.wrongf(f, "%s", e.problem)
}

// secretRule is what a secret must be.
type secretRule struct {
	name string
	// check says why a text cannot be used, or is empty; checkFile does for a file,
	// where that is another question.
	check, checkFile func(text string) string
	// others are the forms besides itself in which the text is sent.
	others func(text string) []string
	// mayBeEmpty allows an empty text in the table, mayBeLiteral one that is no
	// variable; notSecret keeps it from being replaced where it is found.
	mayBeEmpty, mayBeLiteral, notSecret bool
}

// secret reads a secret of the mapping f: it stands under its name, or in a file
// that name_file names.
func (r *reader) secret(f field, o object, rule secretRule, env *environment) Secret {
	value, there := o.fields[rule.name]
	file, inFile := o.fields[rule.name+"_file"]
	switch {
	case there && inFile:
		r.problems.addf(r.at(file.key), "%s stands beside %s: write one of them", file.path, value.path)
	case there:
		return r.secretText(value, rule, env)
	case inFile:
		return r.secretFile(file, rule, env)
	case o.missing(rule.name) && o.missing(rule.name+"_file"):
		r.problems.addf(r.at(f.key), "%s: %s is missing: write it, or %s_file", f.path, rule.name, rule.name)
	}
	return Secret{}
}

// required reads a text of the mapping f that must be there, and never stands in a
// file.
func (r *reader) required(f field, o object, rule secretRule, env *environment) Secret {
	value, there := o.fields[rule.name]
	if there {
		return r.secretText(value, rule, env)
	}
	if o.missing(rule.name) {
		r.problems.addf(r.at(f.key), "%s: %s is missing", f.path, rule.name)
	}
	return Secret{}
}

func (r *reader) secretText(f field, rule secretRule, env *environment) Secret {
	v, ok := r.plain(f, env)
	if !ok {
		return Secret{}
	}
	if !v.unset && (v.text != "" || !rule.mayBeEmpty) {
		if problem := rule.check(v.text); problem != "" {
			r.wrongf(f, "%s", problem)
			return Secret{}
		}
	}
	source := &secretSource{name: f.path, text: v.text, unset: v.unset, shown: masked, others: rule.others}
	switch {
	case !v.literal:
		source.shown = v.shown
	case !v.marked && !rule.mayBeLiteral:
		env.inTable = append(env.inTable, literalSecret{f.path, r.at(f.value)})
	}
	if !rule.notSecret {
		env.secrets = append(env.secrets, source)
	}
	return Secret{source}
}

func (r *reader) secretFile(f field, rule secretRule, env *environment) Secret {
	path, _ := r.filePath(f, env)
	if path == "" {
		return Secret{}
	}
	check := rule.check
	if rule.checkFile != nil {
		check = rule.checkFile
	}
	source := &secretSource{name: f.path, shown: masked, others: rule.others}
	for _, failed := range source.readFile(path, check, &env.changes) {
		r.reportFile(f, failed, env)
	}
	env.secrets = append(env.secrets, source)
	return Secret{source}
}

// isEmpty says that the table has an empty text on purpose.
func (s Secret) isEmpty() bool {
	return s.IsSet() && s.source.file == nil && s.source.text == "" && !s.source.unset
}

// credentialProblem says why a text cannot be a credential, or is empty.
func credentialProblem(text string) string {
	switch {
	case text == "":
		return "must not be empty"
	case strings.ContainsFunc(text, isControl):
		return "must not hold a line break or another control character"
	}
	return ""
}

// literalSecret is a secret that stands in the table itself.
type literalSecret struct {
	path string
	at   place
}

// warnOfLiteralSecrets tells of them once: the first, and how many follow.
func (b *builder) warnOfLiteralSecrets() {
	secrets := b.env.inTable
	slices.SortStableFunc(secrets, func(a, b literalSecret) int { return a.at.compare(b.at) })
	secrets = slices.CompactFunc(secrets, func(a, b literalSecret) bool { return a.at == b.at })
	if len(secrets) == 0 {
		return
	}
	more := ""
	if len(secrets) > 1 {
		more = fmt.Sprintf(" (and so do %d more)", len(secrets)-1)
	}
	b.warnf(secrets[0].at, "%s: the secret stands in the table%s: write ${VAR}, or name a file with …_file", secrets[0].path, more)
}
