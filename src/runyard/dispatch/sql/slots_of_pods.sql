-- What we know of these Pod incarnations.
SELECT pod_uid, pod_name, pool, state, generation, fence FROM slots
WHERE pod_uid = ANY(%(pod_uids)s::text[]) ORDER BY pod_uid;
