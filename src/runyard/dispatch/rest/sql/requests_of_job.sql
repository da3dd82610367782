-- The last requests about a job, newest first.
SELECT extract(epoch FROM at)::double precision AS at, field AS what, target AS outcome, detail, actor
FROM tenant_changes WHERE job_id = %(job)s ORDER BY id DESC LIMIT %(limit)s;
