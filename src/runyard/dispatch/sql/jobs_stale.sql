-- Jobs that have been queued for so long that they must be read at GitHub.
SELECT j.job_id, j.tenant, j.repository, j.runner_name, j.look_at, j.state,
    extract(epoch FROM runyard_now() - j.enqueued_at)::double precision AS age, t.installation_id
FROM jobs j JOIN tenants t USING (tenant)
WHERE j.state IN ('waiting', 'queued', 'running') AND j.look_at <= runyard_now() AND j.state = 'queued' AND j.verified
ORDER BY j.look_at, j.job_id LIMIT %(limit)s;
