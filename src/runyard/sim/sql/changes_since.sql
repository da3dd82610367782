-- What the log says since a known entry, each with its slot as it is now.
SELECT t.id, t.subject, t.pod_uid, t.job_id, t.source, t.target, t.reason, t.detail, t.actor,
    s.pod_name, s.pool, s.state, s.tenant, s.scope, s.platform, s.vcpus, s.memory_gb,
    s.intended_job, s.executing_job, s.runner_name, s.fence
FROM transitions t LEFT JOIN slots s ON s.pod_uid = t.pod_uid
WHERE t.id > %(last)s ORDER BY t.id;
