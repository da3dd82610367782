-- What GitHub has sent since the last look is still to be compared: added to a stretch that nobody has begun, or a new one.
WITH grown AS (
    UPDATE delivery_gaps SET until = greatest(until, to_timestamp(%(until)s::double precision)) WHERE page = '' RETURNING id
)
INSERT INTO delivery_gaps (since, until)
SELECT to_timestamp(%(since)s::double precision), to_timestamp(%(until)s::double precision)
WHERE NOT EXISTS (SELECT FROM grown);
