-- Every idle slot, longest known first, whichever replica its Pod waits at.
SELECT pod_uid, pod_name, pool, generation FROM slots WHERE state = 'idle' ORDER BY opened_at, pod_uid;
