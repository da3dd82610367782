-- What the database is made of, before any of it is believed: ordinary tables and their indexes, or it is not ours.
-- A virtual table has no page of its own, whatever its definition pretends to be.
SELECT type, name, coalesce(rootpage, 0) FROM sqlite_master;
