-- The transitions of a job and of the slots that were assigned to it, oldest first.
SELECT extract(epoch FROM at)::double precision AS at, subject, pod_uid, job_id, source, target, reason, detail, actor
FROM transitions WHERE job_id = %(job_id)s ORDER BY id LIMIT %(limit)s;
