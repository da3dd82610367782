-- Jobs that are assigned to a runner; found through the slots, which have an index for it.
SELECT j.job_id, j.tenant, j.repository, j.labels, j.state, j.verified, s.runner_name, j.conclusion,
    j.name, j.workflow, j.run_id,
    extract(epoch FROM j.enqueued_at)::double precision AS enqueued_at,
    extract(epoch FROM j.started_at)::double precision AS started_at,
    extract(epoch FROM j.completed_at)::double precision AS completed_at
FROM slots s JOIN jobs j ON j.job_id = s.intended_job
WHERE s.intended_job IS NOT NULL AND j.state = 'bound'
ORDER BY j.enqueued_at, j.job_id LIMIT %(limit)s;
