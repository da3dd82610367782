-- Record that a delivery was applied, in the transaction that applied it.
INSERT INTO deliveries (guid, received_at, action, outcome)
VALUES (%(guid)s, runyard_now(), %(action)s, %(outcome)s) ON CONFLICT DO NOTHING RETURNING guid;
