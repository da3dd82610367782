-- How far an audit has come.
SELECT value FROM cursors WHERE name = %(name)s;
