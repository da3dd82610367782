-- Store the position of an audit.
INSERT INTO cursors (name, value) VALUES (%(name)s, %(value)s)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
