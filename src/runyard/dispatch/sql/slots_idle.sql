-- The number of idle runners of each pool that ask for work: they polled recently, and those polls were not cut off.
SELECT pool, count(*)::integer AS idle FROM slots
WHERE state <> 'closed' AND state = 'idle' AND last_beat >= runyard_now() - make_interval(secs => %(silent_after)s)
    AND dropped_beat IS DISTINCT FROM last_beat
GROUP BY pool ORDER BY pool;
