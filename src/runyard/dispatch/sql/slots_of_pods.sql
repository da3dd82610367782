-- The slots of these Pods; `silent`: without a poll for so long.
SELECT pod_uid, pod_name, pool, state, generation, fence,
    last_beat < runyard_now() - make_interval(secs => %(silent_after)s) AS silent
FROM slots WHERE pod_uid = ANY(%(pod_uids)s::text[]) ORDER BY pod_uid;
