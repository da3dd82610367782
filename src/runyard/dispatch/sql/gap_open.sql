-- Add the period since the last audit: to a gap that was not started yet, or as a new one.
WITH grown AS (
    UPDATE delivery_gaps SET until = greatest(until, to_timestamp(%(until)s::double precision)) WHERE page = '' RETURNING id
)
INSERT INTO delivery_gaps (since, until)
SELECT to_timestamp(%(since)s::double precision), to_timestamp(%(until)s::double precision)
WHERE NOT EXISTS (SELECT FROM grown);
