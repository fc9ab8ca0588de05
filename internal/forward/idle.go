package forward

import (
	"net"
	"sync"
	"time"
)

// idleConns keeps connections between exchanges, for idleTimeout at most.
type idleConns struct {
	most int // to one address

	mu        sync.Mutex
	byAddress map[string][]*directConn // the last one was used last
	sweeper   *time.Timer              // nil while there is none to close
}

// take returns a connection that the service has not closed; nil when there is
// none.
func (i *idleConns) take(address string) *directConn {
	for {
		c := i.pop(address)
		if c == nil || (time.Since(c.since) < idleTimeout && silent(c.raw)) {
			return c
		}
		_ = c.raw.Close()
	}
}

func (i *idleConns) pop(address string) *directConn {
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
func (i *idleConns) put(c *directConn) bool {
	c.since = time.Now()
	i.mu.Lock()
	defer i.mu.Unlock()
	conns := i.byAddress[c.address]
	if len(conns) >= i.most {
		return false
	}
	if i.byAddress == nil {
		i.byAddress = make(map[string][]*directConn)
	}
	i.byAddress[c.address] = append(conns, c)
	if i.sweeper == nil {
		i.sweeper = time.AfterFunc(idleTimeout, i.sweep)
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
		for old < len(conns) && time.Since(conns[old].since) >= idleTimeout {
			_ = conns[old].raw.Close()
			old++
		}
		if old == len(conns) {
			delete(i.byAddress, address)
			continue
		}
		i.byAddress[address] = append([]*directConn(nil), conns[old:]...)
		if since := conns[old].since; since.Before(oldest) {
			oldest = since
		}
	}
	if i.sweeper = nil; len(i.byAddress) > 0 {
		i.sweeper = time.AfterFunc(time.Until(oldest.Add(idleTimeout)), i.sweep)
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

// rawConn is the connection of the system below those of this package.
func rawConn(conn net.Conn) net.Conn {
	if w := underlying(conn); w != nil {
		return w.Conn
	}
	return conn
}
