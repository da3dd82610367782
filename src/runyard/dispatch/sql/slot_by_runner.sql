-- The newest slot of a tenant whose runner has that name; runners of other tenants may have the same name.
SELECT pod_uid, tenant, intended_job, executing_job, state FROM slots
WHERE tenant = %(tenant)s AND runner_name = %(runner_name)s AND runner_name <> '' -- the index holds only these
ORDER BY opened_at DESC, pod_uid LIMIT 1;
