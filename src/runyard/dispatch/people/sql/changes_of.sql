-- What people changed of a tenant lately, newest first.
SELECT extract(epoch FROM at)::double precision AS at, field, source, target, why, actor
FROM tenant_changes WHERE tenant = %(tenant)s AND job_id IS NULL ORDER BY id DESC LIMIT %(limit)s;
