-- What we know of these Pod incarnations; an idle one that has not spoken for so long is silent.
SELECT pod_uid, pod_name, pool, state, generation, fence,
    last_beat < runyard_now() - make_interval(secs => %(silent_after)s) AS silent
FROM slots WHERE pod_uid = ANY(%(pod_uids)s::text[]) ORDER BY pod_uid;
