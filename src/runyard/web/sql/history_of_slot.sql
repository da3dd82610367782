-- The transitions of one slot, oldest first.
SELECT extract(epoch FROM at)::double precision AS at, subject, pod_uid, job_id, source, target, reason, detail, actor
FROM transitions WHERE pod_uid = %(pod_uid)s ORDER BY id LIMIT %(limit)s;
