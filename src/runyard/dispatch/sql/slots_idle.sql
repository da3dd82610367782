-- The number of idle runners of each pool that polled recently.
SELECT pool, count(*)::integer AS idle FROM slots
WHERE state <> 'closed' AND state = 'idle' AND last_beat >= runyard_now() - make_interval(secs => %(silent_after)s)
GROUP BY pool ORDER BY pool;
