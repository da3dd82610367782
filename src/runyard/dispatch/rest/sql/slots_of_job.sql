-- The slots that a job is intended for or ran in, newest first.
SELECT s.pod_uid, s.pod_name, s.pool, s.state, s.generation, s.intended_job, s.executing_job, s.runner_name,
    s.runner_id, s.fence, s.close_reason,
    extract(epoch FROM s.deadline)::double precision AS deadline,
    extract(epoch FROM s.last_beat)::double precision AS last_beat,
    extract(epoch FROM s.opened_at)::double precision AS opened_at,
    extract(epoch FROM s.closed_at)::double precision AS closed_at
FROM slots s
WHERE s.pod_uid IN (
    SELECT i.pod_uid FROM slots i WHERE i.intended_job = %(job)s
    UNION
    SELECT r.pod_uid FROM slots r WHERE r.tenant = %(tenant)s AND r.runner_name = %(runner_name)s AND r.runner_name <> ''
)
ORDER BY s.opened_at DESC, s.pod_uid LIMIT %(limit)s;
