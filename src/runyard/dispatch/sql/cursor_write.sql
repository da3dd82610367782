-- Remember how far an audit has come.
INSERT INTO cursors (name, value) VALUES (%(name)s, %(value)s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
