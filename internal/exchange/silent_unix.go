//go:build unix

package exchange

import (
	"errors"
	"net"
	"syscall"
)

// canLook says that silent knows.
const canLook = true

// silent reports whether an idle connection is open and nothing has come on it:
// what a service says unasked, its goodbye above all, would be taken for the
// reply to the next request.
func silent(conn net.Conn) bool {
	c, ok := systemConn(conn).(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Read(func(fd uintptr) bool {
		var one [1]byte
		_, _, err := syscall.Recvfrom(int(fd), one[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
		return true
	})
	return err == nil && quiet
}
