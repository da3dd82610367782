-- The jobs that ended last. Found through the end of the log, whose key is in order: the table of jobs is
-- never searched.
SELECT j.job_id, j.tenant, j.repository, j.labels, j.state, j.verified, j.runner_name, j.conclusion,
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
