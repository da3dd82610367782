-- The newest slot whose runner has that name, scoped by tenant: other people choose their own names.
SELECT pod_uid, tenant, intended_job, executing_job, state FROM slots
WHERE tenant = %(tenant)s AND runner_name = %(runner_name)s
ORDER BY opened_at DESC, pod_uid LIMIT 1;
