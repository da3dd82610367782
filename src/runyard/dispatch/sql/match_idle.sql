-- Every idle slot that polled recently at any replica, oldest first.
SELECT pod_uid, pod_name, pool, generation FROM slots
WHERE state = 'idle' AND last_beat > runyard_now() - make_interval(secs => %(silent)s)
ORDER BY opened_at, pod_uid;
