-- The schema of the database, checked before any table is read: only ordinary tables and their indexes are accepted.
-- A virtual table is detected by its root page of 0, whatever its definition says.
SELECT type, name, coalesce(rootpage, 0) FROM sqlite_master;
