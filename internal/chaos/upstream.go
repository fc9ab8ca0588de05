package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// seen is what the service knows of a call, which it tells by the Bridge-* headers.
type seen struct {
	Key         string `json:"key"`          // of the first request
	KeyChanges  int    `json:"key_changes"`  // requests with another key
	Body        string `json:"body"`         // SHA-256 of the first request's body
	BodyChanges int    `json:"body_changes"` // requests with another body
	Requests    int    `json:"requests"`
	Works       int    `json:"works"`     // how often its work was begun
	Life        int    `json:"life"`      // of the bridge when its work was first begun, from 0
	Severed     int    `json:"severed"`   // kills that came while its work was going on
	Recovered   int    `json:"recovered"` // times that its reply was given by key

	done []byte // the reply, once the work is done
}

// record is what the service tells at the end.
type record struct {
	Calls      map[string]*seen `json:"calls"`       // by callID
	SharedKeys int              `json:"shared_keys"` // keys that came with several calls
}

// callID is the identity of a call.
func callID(session, turn, call string) string { return session + "/" + turn + "/" + call }

// upstream is the service behind all routes.
type upstream struct {
	mu    sync.Mutex
	seen  record
	byKey map[string]*seen
	life  int
	conns map[net.Conn]*conn
	done  chan struct{} // closed when the service ends
}

// conn is a connection from the bridge, and the work that is done for the request on it.
type conn struct {
	work *seen
	gone context.Context // ends when the bridge's end of the connection does
	new  bool            // the work belongs to the present life of the bridge
	once bool            // the work must not be done twice
}

type connKey struct{}

func newUpstream() *upstream {
	return &upstream{
		seen: record{Calls: map[string]*seen{}}, byKey: map[string]*seen{}, conns: map[net.Conn]*conn{}, done: make(chan struct{}),
	}
}

// serveUpstream serves until in ends. It prints its URL, and answers each line of in by a line of JSON: killed and
// stopped end a life of the bridge, report tells what came of the calls.
func serveUpstream(ctx context.Context, in io.Reader, out io.Writer) error {
	u := newUpstream()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("serve: %w", err)
	}
	server := u.server()
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // it ends when it is closed
	defer func() {
		close(u.done)
		_ = server.Close()
		serving.Wait()
	}()
	return obey(in, out, "http://"+listener.Addr().String(), map[string]func() (any, error){
		"killed": u.killed, "stopped": u.stopped, "report": u.report,
	})
}

func (u *upstream) server() *http.Server {
	mux := http.NewServeMux()
	for _, f := range functions() {
		mux.HandleFunc("POST /"+f.name, func(w http.ResponseWriter, r *http.Request) { u.serve(w, r, f) })
	}
	mux.HandleFunc("GET /by-key/{key}", u.tell)
	return &http.Server{
		Handler: mux, ReadHeaderTimeout: time.Minute, ConnState: u.track,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) },
	}
}

// track knows which connections are open.
func (u *upstream) track(c net.Conn, state http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch state {
	case http.StateNew:
		u.conns[c] = &conn{}
	case http.StateClosed, http.StateHijacked:
		delete(u.conns, c)
	default:
	}
}

// order is what the arguments ask of the service.
type order struct {
	N      int    `json:"n"`
	MS     int    `json:"ms"`
	Mishap mishap `json:"x"`
}

// serve does the work of one request, also when the bridge goes away meanwhile, as services do.
func (u *upstream) serve(w http.ResponseWriter, r *http.Request, f function) {
	body, err := io.ReadAll(r.Body)
	var o order
	if err != nil || json.Unmarshal(body, &o) != nil {
		http.Error(w, "no arguments", http.StatusBadRequest)
		return
	}
	call, first := u.note(r, body)
	if !first {
		o.Mishap = ""
	}
	if o.Mishap == refused {
		http.Error(w, "busy", http.StatusTooManyRequests)
		return
	}
	if o.Mishap == lost {
		panic(http.ErrAbortHandler)
	}
	reply, replied := u.begin(r, call, f)
	if !replied {
		u.wait(time.Duration(o.MS) * time.Millisecond)
		reply = []byte(replyTo(o.N))
		u.finish(r, call, reply)
	}
	if o.Mishap == dropped {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	if status, err := strconv.Atoi(string(o.Mishap)); err == nil {
		w.WriteHeader(status)
	}
	_, _ = w.Write(reply)
}

// replyTo is the reply to the n-th call.
func replyTo(n int) string { return fmt.Sprintf(`{"done":%d}`, n) }

// note writes a request down; first says that it is the first of its call.
func (u *upstream) note(r *http.Request, body []byte) (call *seen, first bool) {
	id := callID(r.Header.Get("Bridge-Session-Id"), r.Header.Get("Bridge-Turn-Id"), r.Header.Get("Bridge-Call-Id"))
	key, digest := r.Header.Get("Idempotency-Key"), digest(body)
	u.mu.Lock()
	defer u.mu.Unlock()
	call = u.seen.Calls[id]
	if call == nil {
		call = &seen{Key: key, Body: digest}
		u.seen.Calls[id] = call
		if u.byKey[key] != nil {
			u.seen.SharedKeys++
		}
		u.byKey[key] = call
	}
	call.Requests++
	if key != call.Key {
		call.KeyChanges++
	}
	if digest != call.Body {
		call.BodyChanges++
	}
	return call, call.Requests == 1
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// begin begins the work of a request, unless its function is idempotent and the work was done before: then it gives
// the reply of that time.
func (u *upstream) begin(r *http.Request, call *seen, f function) (reply []byte, replied bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f.idempotent && call.done != nil {
		return call.done, true
	}
	if call.Works == 0 {
		call.Life = u.life
	}
	call.Works++
	if c := u.connOf(r); c != nil {
		c.work, c.gone, c.new, c.once = call, r.Context(), true, !f.idempotent
	}
	return nil, false
}

func (u *upstream) finish(r *http.Request, call *seen, reply []byte) {
	u.mu.Lock()
	defer u.mu.Unlock()
	call.done = reply
	if c := u.connOf(r); c != nil {
		c.work = nil
	}
}

// connOf is the connection of a request. The lock is held.
func (u *upstream) connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(net.Conn)
	return u.conns[c]
}

// wait passes the time of the work.
func (u *upstream) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-u.done:
	}
}

// tell says by its key what became of a request: the reply, 202 while its work goes on, 404 when it was never begun.
func (u *upstream) tell(w http.ResponseWriter, r *http.Request) {
	u.mu.Lock()
	call := u.byKey[r.PathValue("key")]
	var reply []byte
	begun := call != nil && call.Works > 0
	if begun && call.done != nil {
		reply = call.done
		call.Recovered++
	}
	u.mu.Unlock()
	switch {
	case reply != nil:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(reply)
	case begun:
		w.WriteHeader(http.StatusAccepted)
	default:
		http.NotFound(w, r)
	}
}

// settle is how long the connections of a dead process may take to break.
const settle = 10 * time.Second

// severed is the answer to "killed".
type severed struct {
	InFlight int `json:"in_flight"` // calls of functions that are not idempotent, at work for a connection that died
}

// killed ends a life of the bridge that was cut off, and counts the work that was going on for it. The process is dead,
// so each of its connections is closed, or has work going on and is known to be broken.
func (u *upstream) killed() (any, error) {
	for deadline := time.Now().Add(settle); !u.quiet(); {
		if time.Now().After(deadline) {
			return nil, errors.New("connections of the killed bridge are still open")
		}
		u.wait(time.Millisecond)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	answer := severed{}
	for _, c := range u.conns {
		if c.work != nil && c.new {
			c.new = false
			c.work.Severed++
			if c.once {
				answer.InFlight++
			}
		}
	}
	u.life++
	return answer, nil
}

// quiet reports whether nothing more can come from a dead bridge.
func (u *upstream) quiet() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, c := range u.conns {
		if c.work == nil || c.gone.Err() == nil {
			return false
		}
	}
	return true
}

// stopped ends a life of the bridge that came to its end by itself.
func (u *upstream) stopped() (any, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.life++
	return struct{}{}, nil
}

func (u *upstream) report() (any, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	text, err := json.Marshal(u.seen)
	return json.RawMessage(text), err
}

// obey prints hello and then one line of JSON for each line of in, until in ends or a command fails.
func obey(in io.Reader, out io.Writer, hello any, commands map[string]func() (any, error)) error {
	encode := json.NewEncoder(out)
	if err := encode.Encode(hello); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		do := commands[lines.Text()]
		if do == nil {
			return usageError{fmt.Errorf("unknown command %q", lines.Text())}
		}
		answer, err := do()
		if err != nil {
			return err
		}
		if err := encode.Encode(answer); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	return lines.Err()
}
