package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
)

//go:embed migrations/*.sql
var migrations embed.FS

// readers is how many queries may run at once.
const readers = 4

// pragma is one setting of a connection: how the DSN sets it and how SQLite
// shows it when it is in force.
type pragma struct{ name, value, shown string }

// pragmas are in force on every connection.
//
// FULL syncs the log at each commit: with NORMAL a power cut takes commits back
// that were already reported. A multi-row upsert writes a statement journal,
// which temp_store keeps off the disk.
func pragmas() []pragma {
	return []pragma{
		{"busy_timeout", "5000", "5000"}, // ms; first, so that setting WAL waits too
		{"journal_mode", "WAL", "wal"},
		{"synchronous", "FULL", "2"},
		{"foreign_keys", "ON", "1"},
		{"temp_store", "MEMORY", "2"},
	}
}

// locate returns the absolute path behind symlinks, so that one file has one
// lock under every name.
func locate(path string) (string, error) {
	if path == "" {
		return "", errors.New("the path is empty: name a file")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil { //nolint:gosec // the path is the operator's own setting
		switch {
		case info.IsDir():
			return "", fmt.Errorf("%s is a directory: use another path, of a file", path)
		case !info.Mode().IsRegular():
			return "", fmt.Errorf("%s is no ordinary file and would keep nothing: use another path", path)
		}
	}
	dir := filepath.Dir(path)
	info, err := os.Stat(dir) //nolint:gosec // as above
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("the directory %s does not exist: create it, or use another path", dir)
	case err != nil:
		return "", err
	case !info.IsDir():
		return "", fmt.Errorf("%s is not a directory: use another path", dir)
	}
	return path, nil
}

// touch creates the file readable by its owner alone, because it holds what
// models and services say; SQLite gives its log the same mode.
func touch(path string) (os.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the path is the operator's own setting
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	return info, errors.Join(err, f.Close())
}

// writing returns the connector of connections that may write. They leave the
// CHECK on the state to valid: SQLite fills a table with the known states for each
// row to look one up in, which took a quarter of the time of a row. With erase they
// overwrite what is deleted: else it would stay in the free pages of the file.
// Otherwise nobody asked for that, and freed pages need not be written.
func writing(path string, erase bool) (driver.Connector, error) {
	set := append(pragmas(), pragma{"ignore_check_constraints", "ON", "1"})
	if erase {
		set = append(set, pragma{"secure_delete", "ON", "1"})
	}
	return connector(path, url.Values{"_txlock": {"immediate"}}, set)
}

// reading returns a pool that cannot write.
func reading(path string) (*sql.DB, error) {
	c, err := connector(path, url.Values{"_query_only": {"1"}}, pragmas())
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers)
	return db, nil
}

// connector opens the file for this process alone (vfs unix-excl), so that
// SQLite keeps the index of its log on the heap. Other processes would share it
// through mapped memory, and a thread that touches a mapping of a file system
// that hangs cannot be stopped: the next garbage collection would wait for it,
// and with it everything else.
func connector(path string, q url.Values, set []pragma) (driver.Connector, error) {
	q.Set("vfs", "unix-excl")
	for _, p := range set {
		q.Add("_pragma", p.name+"("+p.value+")")
	}
	name := url.URL{Path: path}
	base, err := sqlite.NewConnector("file:" + name.EscapedPath() + "?" + q.Encode())
	if err != nil {
		return nil, err
	}
	return assertive{base, set}, nil
}

// assertive refuses a connection on which a pragma is not in force: a misspelt
// one is no error to SQLite, and some file systems do not allow WAL.
type assertive struct {
	driver.Connector

	set []pragma
}

// Connect opens a connection and reads every pragma back.
func (a assertive) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := a.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range a.set {
		if err := inForce(ctx, conn, p); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

func inForce(ctx context.Context, conn driver.Conn, p pragma) error {
	row, err := queryRow(ctx, conn, "PRAGMA "+p.name)
	if err != nil {
		return fmt.Errorf("read pragma %s: %w", p.name, err)
	}
	if got := fmt.Sprint(row[0]); got != p.shown {
		return fmt.Errorf("pragma %s is %s and must be %s: put the journal on a local disk", p.name, got, p.shown)
	}
	return nil
}

// queryRow returns the first row of a query; io.EOF when there is none.
func queryRow(ctx context.Context, conn driver.Conn, query string, args ...driver.NamedValue) ([]driver.Value, error) {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return nil, errors.New("the driver cannot query")
	}
	rows, err := q.QueryContext(ctx, query, args)
	if err != nil {
		return nil, err
	}
	row := make([]driver.Value, len(rows.Columns()))
	err = rows.Next(row)
	return row, errors.Join(err, rows.Close())
}

// checked is the largest file, in bytes, that is read as a whole at a start: it
// takes an eighth of a second.
const checked = 16 << 20

// check looks for damage, so that it shows by its own error and not in the middle
// of a migration, and so that no call is taken for a new one because an index has
// lost its row. Of a file that is too large it looks into each table, and returns
// false: the rest is left to inspect.
func check(ctx context.Context, db *sql.DB, size int64) (whole bool, err error) {
	if size > checked {
		return false, glance(ctx, db)
	}
	found, err := collect(ctx, db, scanText, "PRAGMA integrity_check(1)")
	if err == nil && (len(found) != 1 || found[0] != "ok") {
		err = damaged(strings.Join(strings.Fields(strings.Join(found, " ")), " "), nil)
	}
	return true, err
}

// glance looks into each table.
func glance(ctx context.Context, db *sql.DB) error {
	names, err := collect(ctx, db, scanText, "SELECT name FROM sqlite_schema WHERE type = 'table'")
	if err != nil {
		return err
	}
	for _, name := range names {
		query := `SELECT 1 FROM "` + strings.ReplaceAll(name, `"`, `""`) + `" LIMIT 1`
		if _, err := collect(ctx, db, scanText, query); err != nil {
			return fmt.Errorf("read table %s: %w", name, err)
		}
	}
	return nil
}

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// migrate looks for damage and brings the schema up to this release. A schema
// that is ahead is left alone: migrations only add.
func (s *Store) migrate(ctx context.Context) (err error) {
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	db := sql.OpenDB(s.connect)
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	if s.inspected, err = check(ctx, db, s.file.Size()); err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files,
		goose.WithDisableGlobalRegistry(true), goose.WithSlog(s.logger))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if _, err := p.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
