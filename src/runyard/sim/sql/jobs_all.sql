-- What we know of every job.
SELECT job_id, state, conclusion, runner_name FROM jobs ORDER BY job_id;
