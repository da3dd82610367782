-- Jobs that are queued, waiting for approval or running, the longest waiting first; each state has its own limit.
SELECT j.job_id, j.tenant, j.repository, j.labels, j.state, j.verified, j.runner_name, j.conclusion,
    j.name, j.workflow, j.run_id,
    t.installation_id,
    extract(epoch FROM j.look_at)::double precision AS look_at,
    extract(epoch FROM j.enqueued_at)::double precision AS enqueued_at,
    extract(epoch FROM j.started_at)::double precision AS started_at,
    extract(epoch FROM j.completed_at)::double precision AS completed_at
FROM (
    (SELECT *, 1 AS part, enqueued_at AS place FROM jobs WHERE state = 'queued'
        ORDER BY enqueued_at, job_id LIMIT %(limit)s)
    UNION ALL
    (SELECT *, 2, enqueued_at FROM jobs WHERE state = 'waiting' ORDER BY enqueued_at, job_id LIMIT %(limit)s)
    UNION ALL
    (SELECT *, 3, started_at FROM jobs WHERE state = 'running' ORDER BY started_at DESC, job_id LIMIT %(limit)s)
) j JOIN tenants t ON t.tenant = j.tenant
ORDER BY j.part, CASE WHEN j.part = 3 THEN NULL ELSE j.place END, j.place DESC, j.job_id;
