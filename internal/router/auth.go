package router

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// auth reads the auth of an upstream.
func (r *reader) auth(f field, env *environment) Auth {
	o, ok := r.object(f.path, f.value, keys{
		now: []string{"bearer", "bearer_file", "basic", "header", "oauth2"},
		where: map[string]string{
			"username": "basic", "password": "basic", "password_file": "basic", "name": "header", "value": "header", "value_file": "header",
			"token_url": "oauth2", "client_id": "oauth2", "client_secret": "oauth2", "client_secret_file": "oauth2", "scopes": "oauth2",
		},
	})
	if !ok {
		return Auth{}
	}
	a := Auth{Kind: r.authKind(f, o), shown: map[string]string{}}
	switch a.Kind {
	case AuthBearer:
		a.Bearer = r.bearer(f, o, env)
		a.show("", "bearer", a.Bearer)
	case AuthBasic:
		r.basic(o.fields["basic"], &a, env)
	case AuthHeader:
		r.authHeader(o.fields["header"], &a, env)
	case AuthOAuth2:
		r.oauth2(o.fields["oauth2"], &a, env)
	case AuthNone:
	}
	return a
}

// authKind demands that an auth is of one kind.
func (r *reader) authKind(f field, o object) AuthKind {
	kind := AuthNone
	for _, k := range []AuthKind{AuthBearer, AuthBasic, AuthHeader, AuthOAuth2} {
		_, there := o.fields[string(k)]
		_, inFile := o.fields[string(k)+"_file"]
		switch {
		case !there && !inFile:
		case kind != AuthNone:
			r.problems.addf(r.at(f.key), "%s has %s and %s: write one of them", f.path, kind, k)
		default:
			kind = k
		}
	}
	if kind == AuthNone && len(o.meant) == 0 {
		r.problems.addf(r.at(f.key), "%s: what is sent is missing: bearer, basic, header or oauth2", f.path)
	}
	return kind
}

// show remembers how a secret may be shown.
func (a *Auth) show(path, name string, s Secret) {
	if s.IsSet() && s.source.file != nil {
		name += "_file"
	}
	a.shown[path+name] = s.show()
}

func (r *reader) bearer(f field, o object, env *environment) Secret {
	s := r.secret(f, o, secretRule{name: "bearer", check: credentialProblem}, env)
	const scheme = "bearer "
	if s.IsSet() && len(s.source.text) >= len(scheme) && strings.EqualFold(s.source.text[:len(scheme)], scheme) {
		r.problems.warnf(r.at(o.fields["bearer"].value), "%s: Bearer is put before the token: write the token alone", s.source.name)
	}
	return s
}

func (r *reader) basic(f field, a *Auth, env *environment) {
	o, ok := r.object(f.path, f.value, keys{now: []string{"username", "password", "password_file"}})
	if !ok {
		return
	}
	a.Username = r.required(f, o, secretRule{name: "username", check: usernameProblem, mayBeEmpty: true, mayBeLiteral: true}, env)
	username, _ := a.Username.Reveal()
	a.Password = r.secret(f, o, secretRule{
		name: "password", check: credentialProblem, mayBeEmpty: true,
		others: func(password string) []string { return basicForms(username, password) },
	}, env)
	if a.Username.isEmpty() && a.Password.isEmpty() {
		r.problems.addf(r.at(f.key), "%s: username and password are both empty", f.path)
	}
	a.show("basic.", "username", a.Username)
	a.show("basic.", "password", a.Password)
}

// basicForms are user and password as basic authentication sends them.
func basicForms(username, password string) []string {
	pair := username + ":" + password
	return []string{pair, base64.StdEncoding.EncodeToString([]byte(pair))}
}

func usernameProblem(text string) string {
	if strings.Contains(text, ":") {
		return "must not hold a colon, which ends the user name in basic authentication"
	}
	return credentialProblem(text)
}

func (r *reader) authHeader(f field, a *Auth, env *environment) {
	o, ok := r.object(f.path, f.value, keys{now: []string{"name", "value", "value_file"}})
	if !ok {
		return
	}
	name := r.required(f, o, secretRule{name: "name", check: authHeaderProblem, mayBeLiteral: true, notSecret: true}, env)
	a.HeaderName, _ = name.Reveal()
	a.HeaderValue = r.secret(f, o, secretRule{name: "value", check: credentialProblem}, env)
	a.show("header.", "name", name)
	a.show("header.", "value", a.HeaderValue)
}

// authHeaderProblem says why a header cannot be a credential, or is empty.
func authHeaderProblem(name string) string {
	if strings.EqualFold(name, "Host") {
		return "the host is no credential: write headers: { Host: … }"
	}
	return headerNameProblem(name)
}

func (r *reader) oauth2(f field, a *Auth, env *environment) {
	o, ok := r.object(f.path, f.value, keys{now: []string{"token_url", "client_id", "client_secret", "client_secret_file", "scopes"}})
	if !ok {
		return
	}
	a.OAuth2.TokenURL = r.required(f, o, secretRule{name: "token_url", check: tokenURLProblem, mayBeLiteral: true}, env)
	a.OAuth2.ClientID = r.required(f, o, secretRule{name: "client_id", check: credentialProblem, mayBeLiteral: true}, env)
	id, _ := a.OAuth2.ClientID.Reveal()
	a.OAuth2.ClientSecret = r.secret(f, o, secretRule{
		name: "client_secret", check: credentialProblem,
		// RFC 6749, section 2.3.1: both are encoded as in a form before.
		others: func(secret string) []string { return basicForms(url.QueryEscape(id), url.QueryEscape(secret)) },
	}, env)
	a.show("oauth2.", "token_url", a.OAuth2.TokenURL)
	a.show("oauth2.", "client_id", a.OAuth2.ClientID)
	a.show("oauth2.", "client_secret", a.OAuth2.ClientSecret)
	if scopes, there := o.fields["scopes"]; there {
		a.OAuth2.Scopes = r.scopes(scopes, env)
		a.shown["oauth2.scopes"] = masked
	}
}

// scopes reads a list of scopes, or one text with blanks between them.
func (r *reader) scopes(f field, env *environment) []string {
	var scopes []string
	for _, item := range r.list(f) {
		s := r.secretText(item, secretRule{check: scopeProblem, mayBeLiteral: true, notSecret: true}, env)
		text, _ := s.Reveal()
		scopes = append(scopes, strings.Fields(text)...)
	}
	return scopes
}

// scopeProblem: RFC 6749, section 3.3, knows no other characters.
func scopeProblem(text string) string {
	if strings.TrimSpace(text) == "" || strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' }) {
		return `must be a scope: letters, digits and marks other than " and \`
	}
	return ""
}

// list returns the items of a list; a value alone is a list of one.
func (r *reader) list(f field) []field {
	if f.value.Kind != yaml.SequenceNode {
		return []field{f}
	}
	items := make([]field, len(f.value.Content))
	for i, n := range f.value.Content {
		items[i] = field{name: f.name, path: fmt.Sprintf("%s[%d]", f.path, i), key: n, value: n}
	}
	return items
}

// tokenURLProblem says why a text is no URL to get tokens from, or is empty. It
// repeats none of it.
func tokenURLProblem(text string) string {
	if problem := literalProblem(text); problem != "" {
		return "bad URL: " + problem
	}
	if err := checkTokenURL(text); err != nil {
		return "bad URL: " + err.Error()
	}
	return ""
}

func checkTokenURL(text string) error {
	_, rest, _ := strings.Cut(text, "://")
	authority, _ := cutAuthority(rest)
	switch {
	case strings.Contains(text, "#"):
		return errors.New("a fragment (#…) is never sent")
	case strings.ContainsAny(text, "{}"):
		return errors.New("templates do not work here")
	case strings.Contains(authority, "@"):
		return errors.New("user and password stand in client_id and client_secret")
	}
	return checkBase([]piece{{literal: escapeDollar(text)}})
}

// checkAuth holds the auth of an upstream against its URL and headers, which must
// not set what it sets.
func (b *builder) checkAuth(u *upstream, path string, at place) {
	name := u.service.Auth.Header()
	if name == "" {
		return
	}
	if u.url != nil && hasUserinfo(u.url.head) {
		b.addf(at, "%s.auth stands beside the user and password in %s.url: remove one of them", path, path)
	}
	if i := indexHeader(u.headers, name); i >= 0 {
		b.addf(u.headers[i].at, "%s.headers.%s stands beside %s.auth, which sets this header too: remove one of them", path, u.headers[i].name, path)
	}
}

func hasUserinfo(head []piece) bool {
	fixed, _ := fixedText(head)
	_, rest, _ := strings.Cut(fixed, "://")
	authority, _ := cutAuthority(rest)
	return strings.Contains(authority, "@")
}

// warnOfOwnCredential tells of a header that takes the place of the upstream's
// auth.
func (b *builder) warnOfOwnCredential(u *upstream, headers []headerTemplate) {
	name := u.service.Auth.Header()
	if i := indexHeader(headers, name); name != "" && i >= 0 {
		b.warnf(headers[i].at, "the header %s takes the place of the auth of upstream %s", headers[i].name, quoteWord(u.name))
	}
}

// sign reads the sign of an upstream.
func (r *reader) sign(f field, env *environment) Sign {
	o, ok := r.object(f.path, f.value, keys{now: []string{"secret", "secret_file"}})
	if !ok {
		return Sign{}
	}
	secret, there := o.fields["secret"]
	if _, inFile := o.fields["secret_file"]; !there || inFile || secret.value.Kind != yaml.SequenceNode {
		s := r.secret(f, o, secretRule{name: "secret", check: signingProblem, checkFile: signingFileProblem, others: signingForms}, env)
		if !s.IsSet() {
			return Sign{}
		}
		return Sign{[]Secret{s}}
	}
	items := r.list(secret)
	if len(items) < 1 || len(items) > maxSigningKeys {
		r.wrongf(secret, "must be one secret or two, while one takes the place of the other, got %d", len(items))
		return Sign{}
	}
	var secrets []Secret
	for _, item := range items {
		secrets = append(secrets, r.secretText(item, secretRule{name: "secret", check: signingProblem, others: signingForms}, env))
	}
	return Sign{secrets}
}

func signingProblem(text string) string {
	_, problem := signingKey(text)
	return problem
}

// signingFileProblem: a file may hold the old and the new secret.
func signingFileProblem(text string) string {
	words := strings.Fields(text)
	if len(words) > maxSigningKeys {
		return "must be one, or two while one takes the place of the other"
	}
	for _, word := range words {
		if problem := signingProblem(word); problem != "" {
			return problem
		}
	}
	return ""
}

// signingForms are the secrets of a file, one by one and without their prefix.
func signingForms(text string) []string {
	var forms []string
	for word := range strings.FieldsSeq(text) {
		forms = append(forms, word, strings.TrimPrefix(word, signingPrefix))
	}
	return forms
}

// warnOfUnsigned tells of what signatures do not cover, once an upstream.
func (b *builder) warnOfUnsigned() {
	for _, name := range slices.Sorted(maps.Keys(b.upstreams)) {
		u := b.upstreams[name]
		if !u.service.Sign.IsSet() || len(u.unsigned) == 0 {
			continue
		}
		b.warnf(u.signAt, "%s: a signature covers the body: path and query of GET, HEAD and DELETE are not covered (%s)", join("upstreams", name)+".sign", listed(u.unsigned))
	}
}
