package router

import (
	"slices"
	"strings"
)

// maxComparedName bounds, in bytes, the names that likeness is computed for: a
// name may come from a model.
const maxComparedName = 128

// didYouMean is " (did you mean x?)" for the nearest of the known words, or
// empty when none is near.
func didYouMean(word string, known []string) string {
	if near := closest(word, known, 1); len(near) > 0 {
		return " (did you mean " + near[0] + "?)"
	}
	return ""
}

// meantKey is the key that an unknown one was probably meant to be: one that is
// called so elsewhere, else the nearest; empty when there is none.
func meantKey(word string, known []string) string {
	if meant := otherWords()[fold(word)]; slices.Contains(known, meant) {
		return meant
	}
	return Nearest(word, known)
}

// otherWords are names that other tools have for keys of the table, folded.
func otherWords() map[string]string {
	return map[string]string{
		"params": "parameters", "schema": "parameters", "inputschema": "parameters", "jsonschema": "parameters",
		"args": "parameters", "arguments": "parameters",
		"desc": "description", "summary": "description",
		"retries": "retry", "maxretries": "retry", "maxattempts": "attempts", "backoff": "min_wait",
		"uri": "url", "endpoint": "url", "baseurl": "url", "href": "url", "address": "url", "host": "url",
		"verb": "method", "httpmethod": "method",
		"bodytemplate": "body", "payload": "body", "requestbody": "body", "json": "body", "data": "body", "template": "body",
		"successif": "success_when", "success": "success_when", "okwhen": "success_when", "condition": "success_when",
		"transform": "output", "outputtemplate": "output", "select": "output", "errormessage": "error", "message": "error",
		"deferred": "defer_loading", "lazy": "defer_loading", "background": "async",
		"querystring": "query", "queryparams": "query", "service": "upstream", "backend": "upstream",
		"functions": "routes", "tools": "routes", "endpoints": "routes",
		"services": "upstreams", "backends": "upstreams", "servers": "upstreams",
		"response": "result", "deadline": "timeout",
		"authentication": "auth", "authorization": "auth", "credentials": "auth", "mtls": "tls", "ssl": "tls", "signing": "sign", "signature": "sign",
		"token": "bearer", "accesstoken": "bearer", "apikey": "header", "oauth": "oauth2", "clientcredentials": "oauth2",
		"user": "username", "login": "username", "pass": "password", "tokenendpoint": "token_url", "scope": "scopes",
		"ca": "ca_file", "cacert": "ca_file", "cert": "cert_file", "certificate": "cert_file", "clientcert": "cert_file",
		"key": "key_file", "privatekey": "key_file", "clientkey": "key_file", "sni": "server_name", "secrets": "secret",
		"concurrency": "max_concurrent", "maxconcurrency": "max_concurrent", "queue": "max_queue", "queuesize": "max_queue",
		"rate": "rate_limit", "throttle": "rate_limit", "breaker": "circuit_breaker",
		"threshold": "failures", "maxfailures": "failures", "cooldown": "open_for", "timeout": "open_for", "opentimeout": "open_for",
	}
}

// Nearest is the one of the known words that word was probably meant to be,
// or empty when none is near.
func Nearest(word string, known []string) string {
	if near := closest(word, known, 1); len(near) > 0 {
		return near[0]
	}
	return ""
}

// closest returns up to n of the known words that word was probably meant to
// be, best first.
func closest(word string, known []string, n int) []string {
	if word == "" || len(word) > maxComparedName {
		return nil
	}
	type candidate struct {
		word string
		off  int
	}
	var near []candidate
	folded := fold(word)
	limit := max(1, min(len(word)/3, 4))
	for _, k := range known {
		if off := likeness(word, folded, k, limit); off <= limit {
			near = append(near, candidate{k, off})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return a.off - b.off })
	words := make([]string, 0, n)
	for _, c := range near[:min(n, len(near))] {
		words = append(words, c.word)
	}
	return words
}

// likeness counts what separates word from known: 0 for the same letters in
// another spelling (case, _ - . /), 1 for a prefix too many or too few, else
// the edit distance. Anything above limit is too far.
func likeness(word, folded, known string, limit int) int {
	f := fold(known)
	switch {
	case f == folded:
		return 0
	case hasPart(word, known) || hasPart(known, word):
		return 1
	case abs(len(f)-len(folded)) > limit:
		return limit + 1
	}
	return distance(folded, f)
}

// hasPart says that long ends in short after a separator, as in
// functions.list_invoices.
func hasPart(long, short string) bool {
	rest, ok := strings.CutSuffix(long, short)
	return ok && len(short) > 2 && rest != "" && strings.ContainsRune("._-/:", rune(rest[len(rest)-1]))
}

func fold(word string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune("_-./ ", r) {
			return -1
		}
		return r
	}, strings.ToLower(word))
}

// distance is the number of letters to insert, drop, replace or swap with
// their neighbour (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

func abs(n int) int {
	return max(n, -n)
}
