-- Sessions that have been open for more than six hours, the limit of existing dashboards.
SELECT pool, count(*)::integer AS sessions FROM slots
WHERE claimed_at < runyard_now() - interval '6 hours' AND ended_at IS NULL AND claimed_at IS NOT NULL
GROUP BY pool ORDER BY pool;
