-- Unfinished jobs, newest first, before a given one.
SELECT job_id AS job, tenant, repository, name, workflow, branch, head_sha, run_id, run_attempt, labels, state,
    verified, priority, runner_name, conclusion, trust,
    extract(epoch FROM enqueued_at)::double precision AS enqueued_at,
    extract(epoch FROM claimed_at)::double precision AS claimed_at,
    extract(epoch FROM started_at)::double precision AS started_at,
    extract(epoch FROM completed_at)::double precision AS completed_at
FROM jobs
WHERE state <> 'done' AND job_id < %(before)s
    AND (%(state)s = '' OR state = %(state)s)
    AND (%(tenant)s = '' OR tenant = %(tenant)s)
    AND (%(repository)s = '' OR repository = %(repository)s)
ORDER BY job_id DESC LIMIT %(limit)s;
