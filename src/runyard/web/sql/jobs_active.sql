-- Jobs that wait or run, the longest waiting first; each state has its own limit.
(
    SELECT job_id, tenant, repository, labels, state, verified, runner_name, conclusion,
        extract(epoch FROM enqueued_at)::double precision AS enqueued_at,
        extract(epoch FROM started_at)::double precision AS started_at,
        extract(epoch FROM completed_at)::double precision AS completed_at
    FROM jobs WHERE state = 'queued' ORDER BY jobs.enqueued_at, job_id LIMIT %(limit)s
)
UNION ALL
(
    SELECT job_id, tenant, repository, labels, state, verified, runner_name, conclusion,
        extract(epoch FROM enqueued_at)::double precision AS enqueued_at,
        extract(epoch FROM started_at)::double precision AS started_at,
        extract(epoch FROM completed_at)::double precision AS completed_at
    FROM jobs WHERE state = 'running' ORDER BY jobs.started_at DESC, job_id LIMIT %(limit)s
);
