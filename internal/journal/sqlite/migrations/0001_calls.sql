-- Migrations only add: the release before must run on the schema after.

-- +goose Up

-- One row for each (session, turn, call). Times are microseconds since 1970 UTC,
-- 0 is "not yet". What services and models say is a blob, so that U+0000 and
-- invalid UTF-8 come back byte for byte; the big columns stand last, so that
-- reading the small ones never touches their overflow pages.
-- id is the order of the first write.
CREATE TABLE calls (
    id           INTEGER PRIMARY KEY,
    session_id   TEXT    NOT NULL,
    turn_id      TEXT    NOT NULL,
    call_id      TEXT    NOT NULL,
    function     TEXT    NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN
        ('pending', 'running', 'answered', 'submitted', 'confirmed', 'in_doubt', 'abandoned')),
    owner        TEXT    NOT NULL,
    idempotent   INTEGER NOT NULL,
    generation   INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    answered_at  INTEGER NOT NULL,
    submitted_at INTEGER NOT NULL,
    confirmed_at INTEGER NOT NULL,
    success      INTEGER NOT NULL,
    content      INTEGER NOT NULL,
    failure      TEXT    NOT NULL,
    error        BLOB,
    attempts     BLOB,
    late_outcome BLOB,
    request      BLOB,
    arguments    BLOB,
    output       BLOB,
    UNIQUE (session_id, turn_id, call_id)
) STRICT;

-- What a start has to take up again; empty when all is settled.
CREATE INDEX calls_unsettled ON calls (id) WHERE state NOT IN ('confirmed', 'abandoned');

-- How many calls are settled, written in each transaction: counting them at a
-- start would read the whole history.
CREATE TABLE tally (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    confirmed  INTEGER NOT NULL,
    abandoned  INTEGER NOT NULL,
    written_at INTEGER NOT NULL
) STRICT;

INSERT INTO tally (id, confirmed, abandoned, written_at) VALUES (1, 0, 0, 0);

-- Sessions asked for by hand; followed = 0 is a session to be left alone.
CREATE TABLE follows (
    session_id TEXT    PRIMARY KEY,
    followed   INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
