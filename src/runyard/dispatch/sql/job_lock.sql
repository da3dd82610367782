-- Jobs in ascending order, locked.
SELECT job_id, tenant, state, verified, runner_name, conclusion FROM jobs
WHERE job_id = ANY(%(job_ids)s::bigint[]) ORDER BY job_id FOR UPDATE;
