-- A delivery could not be fetched or applied, and is perhaps asked for again; how often that makes.
INSERT INTO redeliveries (guid, asked, asked_at) VALUES (%(guid)s, 1, runyard_now())
ON CONFLICT (guid) DO UPDATE SET asked = redeliveries.asked + 1, asked_at = runyard_now()
RETURNING asked;
