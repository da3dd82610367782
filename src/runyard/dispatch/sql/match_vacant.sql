-- Armed runners whose job is gone: they can take another one.
SELECT pod_uid, pool, generation, tenant, scope FROM slots
WHERE state = 'armed' AND intended_job IS NULL ORDER BY opened_at, pod_uid;
