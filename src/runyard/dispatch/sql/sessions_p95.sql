-- The number of a pool's claimed Pods by minute of the last hour: the 95th percentile over the minutes with any. A session
-- counts for six hours at most. Reads only open sessions and those that ended within the hour.
WITH hour AS (
    SELECT date_trunc('minute', runyard_now()) - interval '59 minutes' AS begins
), sessions AS (
    SELECT s.claimed_at, runyard_now() AS ended_at FROM slots s, hour h
    WHERE s.pool = %(pool)s AND s.claimed_at IS NOT NULL AND s.ended_at IS NULL
        AND s.claimed_at > h.begins - interval '6 hours'
    UNION ALL
    SELECT s.claimed_at, s.ended_at FROM slots s, hour h
    WHERE s.pool = %(pool)s AND s.claimed_at IS NOT NULL AND s.ended_at >= h.begins
        AND s.claimed_at > h.begins - interval '6 hours'
), spans AS (
    SELECT
        greatest(0, floor(extract(epoch FROM s.claimed_at - h.begins) / 60))::integer AS first,
        least(59, floor(extract(epoch FROM
            least(s.ended_at, s.claimed_at + interval '6 hours') - h.begins) / 60))::integer AS last
    FROM sessions s, hour h
), edges AS (
    SELECT first AS minute, 1 AS change FROM spans WHERE last >= 0 AND first <= last
    UNION ALL
    SELECT last + 1, -1 FROM spans WHERE last >= 0 AND first <= last
    UNION ALL
    SELECT minute, 0 FROM generate_series(0, 59) AS minute
), levels AS (
    SELECT e.minute, sum(sum(e.change)) OVER (ORDER BY e.minute) AS busy FROM edges e GROUP BY e.minute
)
SELECT coalesce(percentile_disc(0.95) WITHIN GROUP (ORDER BY l.busy) FILTER (WHERE l.busy > 0), 0)::integer AS p95
FROM levels l WHERE l.minute < 60;
