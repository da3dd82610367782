-- Everything that the log says about a job and about the slots that were meant for it, oldest first.
SELECT extract(epoch FROM at)::double precision AS at, subject, pod_uid, job_id, source, target, why, actor
FROM transitions WHERE job_id = %(job_id)s ORDER BY id LIMIT %(limit)s;
