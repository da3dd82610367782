-- Every slot that is not closed, with the job that it runs or is assigned to.
SELECT s.pod_uid, s.pod_name, s.pool, s.state,
    extract(epoch FROM s.opened_at)::double precision AS opened_at,
    s.last_beat < runyard_now() - make_interval(secs => %(asking_within)s)
        OR s.dropped_beat IS NOT DISTINCT FROM s.last_beat AS silent,
    coalesce(s.executing_job, s.intended_job) AS job_id,
    coalesce(j.repository, '') AS repository, coalesce(j.name, '') AS job_name,
    coalesce(j.workflow, '') AS job_workflow, coalesce(j.run_id, 0) AS run_id,
    extract(epoch FROM j.started_at)::double precision AS started_at
FROM slots s LEFT JOIN jobs j ON j.job_id = coalesce(s.executing_job, s.intended_job)
WHERE s.state <> 'closed'
ORDER BY s.opened_at, s.pod_uid LIMIT %(limit)s;
