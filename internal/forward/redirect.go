package forward

import (
	"net/http"
	"net/url"
	"strings"
)

// sameOrigin returns where a 307 or 308 points within the same scheme, host
// and port, nil for every other reply: only these two keep method and body, and
// nobody else gets the request's headers.
func sameOrigin(from *url.URL, response *http.Response) *url.URL {
	if response.StatusCode != http.StatusTemporaryRedirect && response.StatusCode != http.StatusPermanentRedirect {
		return nil
	}
	location := response.Header.Get("Location")
	if location == "" {
		return nil
	}
	to, err := from.Parse(location)
	if err != nil || origin(to) != origin(from) {
		return nil
	}
	to.User, to.Fragment, to.RawFragment = nil, "", ""
	return to
}

// origin is scheme, host and port in one form.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + strings.ToLower(u.Hostname()) + ":" + port
}
