package router

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Table is a valid route table. It is read-only and safe for concurrent use.
type Table struct {
	routes        []*Route
	byName        map[string]*Route
	env           *environment
	ignoreUnknown bool
	revision      string
	warnings      Problems
	toolWarnings  Problems
}

// Load reads the table at path: a file, or a directory whose visible *.yaml
// files make one table. Relative paths in it begin at the directory of the file
// that names them. A table with mistakes gives Problems, a file that cannot
// be read the error of the operating system.
//
// The files are read as they were at one moment: what changes while it is read is
// read again, and in the end an error.
func Load(path string, env Env) (*Table, error) {
	files, err := settledFiles(path)
	if err != nil {
		return nil, err
	}
	return parseFiles(files, env)
}

// maxReads bounds how often the files of a table are read, until they are the same
// twice in a row.
const maxReads = 5

func settledFiles(path string) ([]source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read the route table: %w", err)
	}
	files, err := readFiles(path, info.IsDir())
	isPipe := !info.IsDir() && !info.Mode().IsRegular()
	if err != nil || isPipe {
		return files, err // a pipe gives what it has once
	}
	for range maxReads - 1 {
		again, err := readFiles(path, info.IsDir())
		if err != nil {
			return nil, err
		}
		if slices.EqualFunc(files, again, source.equal) {
			return files, nil
		}
		files = again
	}
	return nil, fmt.Errorf("read the route table: %s changes while it is read", path)
}

func readFiles(path string, isDir bool) ([]source, error) {
	names := []string{path}
	if isDir {
		var err error
		if names, err = visibleFiles(path); err != nil {
			return nil, fmt.Errorf("read the route table: %w", err)
		}
		if len(names) == 0 {
			return nil, Problems{{File: path, Line: 1, Column: 1, Message: "no *.yaml file in this directory"}}
		}
	}
	files := make([]source, 0, len(names))
	for _, name := range names {
		data, err := readFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, source{name, data})
	}
	return files, nil
}

// maxFile bounds one file of a table, in bytes: a hundred thousand routes fit.
const maxFile = 16 << 20

func readFile(name string) ([]byte, error) {
	file, err := os.Open(name) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, fmt.Errorf("read the route table: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the route table: %w", err)
	}
	if len(data) > maxFile {
		return nil, Problems{{File: name, Line: 1, Column: 1, Message: fmt.Sprintf("the file is larger than %d MiB", maxFile>>20)}}
	}
	return data, nil
}

// visibleFiles lists the *.yaml files of a directory by name. A Kubernetes
// volume keeps their contents under hidden names, which are left out.
func visibleFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || filepath.Ext(e.Name()) != ".yaml" {
			continue
		}
		name := filepath.Join(dir, e.Name())
		info, err := os.Stat(name)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		if err != nil || !info.IsDir() {
			names = append(names, name)
		}
	}
	return names, nil
}

// revision is a short hash of the files, names and all.
func revision(files []source) string {
	sum := sha256.New()
	for _, f := range files {
		fmt.Fprintf(sum, "%s\x00%d\x00", filepath.Base(f.name), len(f.data))
		sum.Write(f.data)
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// Lookup finds the route of a function by its exact name.
func (t *Table) Lookup(name string) (*Route, bool) {
	r, ok := t.byName[name]
	return r, ok
}

// Routes lists the routes in file order.
func (t *Table) Routes() []*Route { return t.routes }

// IgnoreUnknown says that a call without a route is left alone
// (unknown_function: ignore).
func (t *Table) IgnoreUnknown() bool { return t.ignoreUnknown }

// Closest lists up to three route names that name was probably meant to be,
// best first.
func (t *Table) Closest(name string) []string {
	names := make([]string, len(t.routes))
	for i, r := range t.routes {
		names[i] = r.Name
	}
	return closest(name, names, 3)
}

// Revision is a short hash of the content of the files.
func (t *Table) Revision() string { return t.revision }

// Warnings lists what is odd but no mistake, in file order.
func (t *Table) Warnings() Problems { return t.warnings }

// ToolWarnings lists what keeps routes from being published or called as tools, in
// file order. Nothing of it matters to a bridge that runs them.
func (t *Table) ToolWarnings() Problems { return t.toolWarnings }

// Secrets lists the values that came from ${VAR}, the passwords in URLs, and what
// auth and sign hold, in each form in which it is sent and with what their files
// have held lately; longest first, none empty. SecretsVersion says when there are
// others.
func (t *Table) Secrets() []string {
	secrets := slices.Clone(t.env.passwords)
	for _, s := range t.env.secrets {
		secrets = append(secrets, s.values()...)
	}
	for key, value := range t.env.values {
		if !strings.HasPrefix(key, hiddenUserinfo) {
			secrets = append(secrets, value)
		}
	}
	slices.SortFunc(secrets, func(a, b string) int {
		return cmp.Or(len(b)-len(a), strings.Compare(a, b))
	})
	secrets = slices.Compact(secrets)
	return slices.DeleteFunc(secrets, func(s string) bool { return s == "" })
}

// SecretsVersion is another number whenever Secrets lists more: when a file of
// auth or sign has been read again. Asking reads no file.
func (t *Table) SecretsVersion() uint64 { return t.env.changes.Load() }
