-- Pods whose labels are not about the job that they run, wait for or ran: at its end a host may keep what it has. Those
-- without labels count after some time: the replica that armed them writes the first ones, and until then no host gives
-- them a cache.
SELECT pod_uid FROM slots
WHERE state <> 'closed' AND state IN ('armed', 'executing', 'draining') AND coalesce(executing_job, intended_job) IS NOT NULL
    AND marked_job IS DISTINCT FROM coalesce(executing_job, intended_job)
    AND (marked_job IS NOT NULL OR claimed_at <= runyard_now() - make_interval(secs => %(grace)s))
    AND pod_uid > %(after)s
ORDER BY pod_uid LIMIT %(limit)s;
