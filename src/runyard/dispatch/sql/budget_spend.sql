-- Take points of a rate budget, or return how long it takes until they are available. Also stores the hourly limit that
-- GitHub last reported.
WITH asked AS (
    SELECT %(key)s::text AS key, %(capacity)s::double precision AS capacity, %(points)s::double precision AS points,
        %(keep)s::double precision AS keep, %(limit)s::bigint AS heard_limit, %(left)s::bigint AS heard_left,
        to_timestamp(%(ends)s::double precision) AS heard_ends
), held AS (
    SELECT a.*,
        least(a.capacity, b.level + greatest(0, extract(epoch FROM runyard_now() - b.at)) * a.capacity / 60) AS level,
        extract(epoch FROM b.open_at - runyard_now()) AS closed,
        CASE WHEN b.hour_ends > runyard_now() THEN b.hour_ends END AS hour_ends, b.hour_limit, b.hour_left
    FROM asked a JOIN github_budgets b ON b.key = a.key FOR UPDATE OF b
), known AS (
    SELECT key, level, closed, capacity, points, keep,
        CASE WHEN newer THEN heard_ends ELSE hour_ends END AS hour_ends,
        CASE WHEN newer THEN heard_limit ELSE hour_limit END AS hour_limit,
        CASE WHEN newer THEN heard_left WHEN heard_ends = hour_ends THEN least(hour_left, heard_left)
            ELSE hour_left END AS hour_left
    FROM (SELECT *, coalesce(heard_ends > coalesce(hour_ends, '-infinity'), false) AS newer FROM held) AS both_hours
), judged AS (
    SELECT *, greatest(
        0, closed, (points + least(capacity * keep, capacity - points) - level) * 60 / capacity,
        CASE WHEN hour_left - 1 < hour_limit * keep THEN extract(epoch FROM hour_ends - runyard_now()) END
    )::double precision AS wait
    FROM known
)
UPDATE github_budgets b SET
    level = j.level - CASE WHEN j.wait = 0 THEN j.points ELSE 0 END,
    at = greatest(b.at, runyard_now()), -- a statement that waited for the lock may be older than the last refill
    hour_limit = j.hour_limit,
    hour_left = j.hour_left - CASE WHEN j.wait = 0 THEN 1 ELSE 0 END,
    hour_ends = j.hour_ends
FROM judged j WHERE b.key = j.key
RETURNING j.wait;
