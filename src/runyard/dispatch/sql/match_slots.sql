-- Which of the Pods that wait here are idle, longest known first.
SELECT pod_uid, pod_name, pool, generation FROM slots
WHERE pod_uid = ANY(%(pod_uids)s::text[]) AND state = 'idle' ORDER BY opened_at, pod_uid;
