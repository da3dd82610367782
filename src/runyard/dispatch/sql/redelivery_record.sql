-- Record that a delivery could not be fetched or applied; returns how often.
INSERT INTO redeliveries (guid, asked, asked_at) VALUES (%(guid)s, 1, runyard_now())
ON CONFLICT (guid) DO UPDATE SET asked = redeliveries.asked + 1, asked_at = runyard_now()
RETURNING asked;
