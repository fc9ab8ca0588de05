package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// maxRemembered bounds the requests that a service remembers.
const maxRemembered = 1000

// maxBody bounds a request's body, in bytes.
const maxBody = 1 << 20

// Service is a sample service on a loopback socket that remembers what it was
// sent.
type Service struct {
	Name string
	// URL is where it listens, without a path.
	URL string

	server *http.Server
	done   chan struct{}

	mu       sync.Mutex
	received []Received
}

// Received is one request as it reached a service.
type Received struct {
	// Session, Call and Key are the bridge's headers.
	Session, Call, Key string

	Method string
	// URI is path and query as they stood in the request line.
	URI  string
	Body []byte
}

// StartService serves a handler on a free loopback port until Close.
func StartService(ctx context.Context, name string, handler http.Handler) (*Service, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start the %s: %w", name, err)
	}
	s := &Service{Name: name, URL: "http://" + listener.Addr().String(), done: make(chan struct{})}
	s.server = &http.Server{Handler: s.remembering(handler), ReadHeaderTimeout: 10 * time.Second}
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener) // always an error; ErrServerClosed after Close
	}()
	return s, nil
}

// Close stops the service; requests under way are cut off.
func (s *Service) Close() error {
	err := s.server.Close()
	<-s.done
	return err
}

// Received lists the requests that came for a call, in order.
func (s *Service) Received(session, call string) []Received {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []Received
	for _, r := range s.received {
		if r.Session == session && r.Call == call {
			found = append(found, r)
		}
	}
	return found
}

func (s *Service) remembering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			problem(w, http.StatusBadRequest, "The body could not be read.")
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.remember(Received{
			Session: r.Header.Get("Bridge-Session-Id"), Call: r.Header.Get("Bridge-Call-Id"), Key: r.Header.Get("Idempotency-Key"),
			Method: r.Method, URI: r.RequestURI, Body: body,
		})
		next.ServeHTTP(w, r)
	})
}

func (s *Service) remember(r Received) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.received) < maxRemembered {
		s.received = append(s.received, r)
	}
}

// Shop is the sample service that answers: weather, customers, orders, notes.
func Shop() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /weather", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			City json.RawMessage `json:"city"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.City) == 0 {
			problem(w, http.StatusUnprocessableEntity, "city is missing.")
			return
		}
		reply(w, http.StatusOK, `{"city":%s,"celsius":11.0,"sky":"light rain"}`, asked.City)
	})
	mux.HandleFunc("GET /customers/{customer_id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.ParseUint(r.PathValue("customer_id"), 10, 64)
		if err != nil {
			problem(w, http.StatusNotFound, "There is no customer "+r.PathValue("customer_id")+".")
			return
		}
		address, orders := "", ""
		if slices.Contains(r.URL.Query()["expand"], "address") {
			address = `,"address":"Karl Johans gate 1, Oslo"`
		}
		if slices.Contains(r.URL.Query()["expand"], "orders") {
			orders = `,"orders":[1007]`
		}
		reply(w, http.StatusOK, `{"customer_id":%d,"name":"Ada Lovelace"%s%s}`, id, address, orders)
	})
	mux.HandleFunc("GET /orders", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, `[{"order_id":1007,"status":"open","total":129.90}]`)
	})
	mux.HandleFunc("POST /customers/{customer_id}/notes", func(w http.ResponseWriter, r *http.Request) {
		note, err := io.ReadAll(r.Body)
		if err != nil || !json.Valid(note) {
			problem(w, http.StatusBadRequest, "The note is not JSON.")
			return
		}
		reply(w, http.StatusCreated, `{"note_id":31,"kept":%s}`, note)
	})
	return mux
}

// Carrier is the sample service that fails in interesting ways.
func Carrier() http.Handler {
	c := &carrier{asked: map[string]int{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /parcels/{parcel_id}", func(w http.ResponseWriter, r *http.Request) {
		problem(w, http.StatusNotFound, "There is no parcel "+r.PathValue("parcel_id")+". Parcels are forgotten 90 days after delivery.")
	})
	mux.HandleFunc("POST /labels", c.label)
	mux.HandleFunc("GET /depots", c.crash)
	mux.HandleFunc("POST /pickups", c.pickup)
	mux.HandleFunc("GET /estimates/{parcel_id}", c.hang)
	mux.HandleFunc("POST /losses", c.hang)
	return mux
}

// carrier counts how often it was asked under a key.
type carrier struct {
	mu    sync.Mutex
	asked map[string]int
}

func (*carrier) label(w http.ResponseWriter, r *http.Request) {
	var wanted struct {
		WeightKg float64 `json:"weight_kg"`
	}
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil {
		problem(w, http.StatusBadRequest, "The order for a label is not JSON.")
		return
	}
	if wanted.WeightKg > 30 {
		problem(w, http.StatusUnprocessableEntity, fmt.Sprintf("weight_kg is %g, but a parcel weighs at most 30 kg.", wanted.WeightKg))
		return
	}
	reply(w, http.StatusCreated, `{"label":"L-1","weight_kg":%g}`, wanted.WeightKg)
}

// crash is an error page as frameworks make them: nothing that an agent should
// see.
func (*carrier) crash(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, "<!doctype html><h1>NullPointerException</h1><pre>at no.carrier.Depots.list(Depots.java:17) db-3.internal</pre>")
}

// pickup is busy the first time that it is asked under a key.
func (c *carrier) pickup(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	key := r.Header.Get("Idempotency-Key")
	c.asked[key]++
	first := c.asked[key] == 1
	c.mu.Unlock()
	if first {
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "Busy; try again in a second.")
		return
	}
	reply(w, http.StatusCreated, `{"pickup":"today, 16:00"}`)
}

// hang never answers. It reads the request and waits until its sender gives up.
func (*carrier) hang(_ http.ResponseWriter, r *http.Request) {
	<-r.Context().Done()
	panic(http.ErrAbortHandler)
}

func reply(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, format, args...)
}

// problem is an error as RFC 9457 has it.
func problem(w http.ResponseWriter, status int, detail string) {
	text, err := json.Marshal(struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
	}{http.StatusText(status), status, detail})
	if err != nil {
		panic(http.ErrAbortHandler) // cannot be: text and a number
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
