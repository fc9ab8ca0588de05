package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"functionbridge/internal/admin"
	"functionbridge/internal/router"
)

// liveTable is the route table in force. A new one takes its place whole, or
// not at all; calls keep the one that they began with.
type liveTable struct {
	path    string
	env     router.Env
	log     *slog.Logger
	reloads *admin.Reloads
	// onTake is called with each table after the first, once it is in force.
	onTake   func()
	inForce  atomic.Pointer[router.Table]
	mu       sync.Mutex // one load at a time
	revision string     // of the table in force
}

// Load returns the table in force.
func (l *liveTable) Load() *router.Table { return l.inForce.Load() }

// Reload loads the table and puts it in force, and returns it. After an error the
// one before stays.
func (l *liveTable) Reload() (*router.Table, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	table, err := router.Load(l.path, l.env)
	if err != nil {
		l.reloads.Failed(err)
		l.log.Error("the route table was not taken; the one in force stays", "error", err, "revision", l.revision)
		return nil, err
	}
	l.reloads.Succeeded(time.Now())
	if table.Revision() == l.revision {
		l.log.Info("the route table has not changed; the files hold the one in force", "revision", l.revision)
		return l.inForce.Load(), nil
	}
	l.take(table)
	if l.onTake != nil {
		l.onTake()
	}
	l.log.Info("route table taken", "revision", l.revision, "routes", len(table.Routes()))
	return table, nil
}

// start loads the first table; without one nothing starts.
func (l *liveTable) start() error {
	table, err := router.Load(l.path, l.env)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; set BRIDGE_ROUTES to where it is", err)
	}
	if err != nil {
		return usageError{err}
	}
	l.reloads.Succeeded(time.Now())
	l.take(table)
	return nil
}

// setOnTake has f called whenever a table has taken another's place.
func (l *liveTable) setOnTake(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onTake = f
}

func (l *liveTable) take(table *router.Table) {
	for _, w := range table.Warnings() {
		l.log.Warn("check the route table", "warning", w.String())
	}
	l.revision = table.Revision()
	l.inForce.Store(table)
}

// lookInterval is how often the table's files are looked at. They are looked at
// rather than watched, because that finds every kind of change: a write, an
// editor's rename, a swapped link of a mounted ConfigMap, a file that comes or
// goes, on every file system.
const lookInterval = 500 * time.Millisecond

// watch reloads the table when its files have changed and then stayed as they are
// between two looks: a file that is being written may be a valid table before
// it is whole.
func (l *liveTable) watch(ctx context.Context, acted string) {
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	before := acted
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := signature(l.path)
		if now != acted && now == before {
			acted = now
			_, _ = l.Reload() // it is logged, counted and shown
		}
		before = now
	}
}

// signature changes with the files of a table: with their names, and with what
// a stat of each says, through all links.
func signature(path string) string {
	var sum strings.Builder
	add := func(name string) {
		info, err := os.Stat(name)
		if err != nil {
			fmt.Fprintf(&sum, "%s: unreadable\n", name)
			return
		}
		where, err := filepath.EvalSymlinks(name)
		fmt.Fprintf(&sum, "%s %s %v %d %d %s\n", name, where, err, info.Size(), info.ModTime().UnixNano(), info.Mode())
	}
	add(path)
	entries, err := os.ReadDir(path)
	if err != nil {
		return sum.String() // a file
	}
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".yaml" && !strings.HasPrefix(e.Name(), ".") {
			add(filepath.Join(path, e.Name()))
		}
	}
	return sum.String()
}
