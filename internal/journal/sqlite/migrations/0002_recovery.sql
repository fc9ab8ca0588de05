-- +goose Up

-- fence is raised whenever a call changes hands and rev whenever it changes;
-- sent_at, reran and crashes are what a later process must know of a request
-- whose reply was lost; retry_at is when the API wants the result again; erased
-- rows have lost their payloads on purpose.
ALTER TABLE calls ADD COLUMN fence    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN rev      INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN sent_at  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN retry_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN reran    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN crashes  INTEGER NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN erased   INTEGER NOT NULL DEFAULT 0;

-- The process that has the journal open: its owner, empty after a clean end.
-- Payloads are erased up to the id erased_to.
CREATE TABLE process (
    id        INTEGER PRIMARY KEY CHECK (id = 1),
    owner     TEXT    NOT NULL,
    erased_to INTEGER NOT NULL
) STRICT;

INSERT INTO process (id, owner, erased_to) VALUES (1, '', 0);
