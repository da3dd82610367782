-- Runners that wait for work and spoke lately, for each pool.
SELECT pool, count(*)::integer AS idle FROM slots
WHERE state <> 'closed' AND state = 'idle' AND last_beat >= runyard_now() - make_interval(secs => %(silent_after)s)
GROUP BY pool ORDER BY pool;
