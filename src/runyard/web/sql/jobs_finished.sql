-- The jobs that finished last; found through the end of the transition log, so the job table is not scanned.
SELECT j.job_id, j.tenant, j.repository, j.labels, j.state, j.verified, j.runner_name, j.conclusion,
    j.name, j.workflow, j.run_id,
    extract(epoch FROM j.enqueued_at)::double precision AS enqueued_at,
    extract(epoch FROM j.started_at)::double precision AS started_at,
    extract(epoch FROM j.completed_at)::double precision AS completed_at
FROM (
    SELECT t.id, t.job_id FROM transitions t
    WHERE t.id > (SELECT coalesce(max(id), 0) FROM transitions) - %(window)s::bigint
        AND t.subject = 'job' AND t.target = 'done' AND t.source <> 'done'
    ORDER BY t.id DESC LIMIT %(limit)s
) t JOIN jobs j ON j.job_id = t.job_id
WHERE j.state = 'done'
ORDER BY t.id DESC;
