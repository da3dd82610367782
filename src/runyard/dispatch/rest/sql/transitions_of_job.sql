-- The transitions of a job and of its slots, newest first.
SELECT extract(epoch FROM t.at)::double precision AS at, t.subject, t.pod_uid, t.job_id, t.source, t.target,
    t.reason, t.detail, t.actor
FROM transitions t
WHERE t.job_id = %(job)s OR t.pod_uid = ANY(%(pod_uids)s::text[])
ORDER BY t.id DESC LIMIT %(limit)s;
