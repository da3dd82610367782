-- What we know of every job.
SELECT job_id, tenant, state, verified, conclusion, runner_name FROM jobs ORDER BY job_id;
