-- Unfinished jobs of a repository.
SELECT job_id, state, runner_name FROM jobs WHERE repository = %(repository)s AND state <> 'done' ORDER BY job_id LIMIT %(limit)s;
