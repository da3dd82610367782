-- The stored position of an audit.
SELECT value FROM cursors WHERE name = %(name)s;
