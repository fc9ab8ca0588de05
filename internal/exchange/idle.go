package exchange

import (
	"net"
	"sync"
	"time"
)

// idleConns keeps connections between exchanges, for their patience at most.
type idleConns struct {
	most     int           // to one address
	patience time.Duration // for the next exchange

	mu        sync.Mutex
	byAddress map[string][]*conn // the last one was used last
	sweeper   *time.Timer        // nil while there is none to close
}

// take returns a connection that the service has not closed; nil when there is
// none.
func (i *idleConns) take(address string) *conn {
	for {
		c := i.pop(address)
		if c == nil || (time.Since(c.since) < i.patience && silent(c.raw)) {
			return c
		}
		_ = c.raw.Close()
	}
}

func (i *idleConns) pop(address string) *conn {
	i.mu.Lock()
	defer i.mu.Unlock()
	conns := i.byAddress[address]
	last := len(conns) - 1
	if last < 0 {
		return nil
	}
	c := conns[last]
	conns[last] = nil
	i.byAddress[address] = conns[:last]
	return c
}

// put keeps a connection; false when there are enough.
func (i *idleConns) put(c *conn) bool {
	c.since = time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	conns := i.byAddress[c.address]
	if len(conns) >= i.most {
		return false
	}
	if i.byAddress == nil {
		i.byAddress = make(map[string][]*conn)
	}
	i.byAddress[c.address] = append(conns, c)
	if i.sweeper == nil {
		i.sweeper = time.AfterFunc(i.patience, i.sweep)
	}
	return true
}

// sweep closes what was idle for too long, and comes back while there is more.
func (i *idleConns) sweep() {
	i.mu.Lock()
	defer i.mu.Unlock()
	oldest := time.Now()
	for address, conns := range i.byAddress {
		old := 0
		for old < len(conns) && time.Since(conns[old].since) >= i.patience {
			_ = conns[old].raw.Close()
			old++
		}
		if old == len(conns) {
			delete(i.byAddress, address)
			continue
		}
		i.byAddress[address] = append([]*conn(nil), conns[old:]...)
		if since := conns[old].since; since.Before(oldest) {
			oldest = since
		}
	}
	if i.sweeper = nil; len(i.byAddress) > 0 {
		i.sweeper = time.AfterFunc(time.Until(oldest.Add(i.patience)), i.sweep)
	}
}

// closeAll closes those that are idle now.
func (i *idleConns) closeAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, conns := range i.byAddress {
		for _, c := range conns {
			_ = c.raw.Close()
		}
	}
	i.byAddress = nil
	if i.sweeper != nil {
		i.sweeper.Stop()
		i.sweeper = nil
	}
}

// systemConn is the connection of the system below what wraps it.
func systemConn(c net.Conn) net.Conn {
	for {
		w, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			return c
		}
		c = w.NetConn()
	}
}
