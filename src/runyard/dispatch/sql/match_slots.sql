-- Which of these Pods have idle slots, oldest first.
SELECT pod_uid, pod_name, pool, generation FROM slots
WHERE pod_uid = ANY(%(pod_uids)s::text[]) AND state = 'idle' ORDER BY opened_at, pod_uid;
