-- The last changes of a tenant, newest first.
SELECT extract(epoch FROM at)::double precision AS at, field, source, target, why, actor, detail
FROM tenant_changes WHERE tenant = %(tenant)s AND job_id IS NULL ORDER BY id DESC LIMIT %(limit)s;
