-- Every idle slot that asks for work at any replica, oldest first: it polled recently, and that poll was not cut off.
SELECT pod_uid, pod_name, pool, generation FROM slots
WHERE state = 'idle' AND last_beat >= runyard_now() - make_interval(secs => %(silent)s)
    AND dropped_beat IS DISTINCT FROM last_beat
ORDER BY opened_at, pod_uid;
