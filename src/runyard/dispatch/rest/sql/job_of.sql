-- One job.
SELECT job_id AS job, tenant, repository, name, workflow, branch, head_sha, run_id, run_attempt, labels, state,
    verified, priority, runner_name, conclusion, trust,
    extract(epoch FROM enqueued_at)::double precision AS enqueued_at,
    extract(epoch FROM claimed_at)::double precision AS claimed_at,
    extract(epoch FROM started_at)::double precision AS started_at,
    extract(epoch FROM completed_at)::double precision AS completed_at
FROM jobs WHERE job_id = %(job)s;
