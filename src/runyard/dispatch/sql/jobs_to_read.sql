-- Jobs to read at GitHub: requeued and not read since, or due because they run or await an approval.
SELECT j.job_id, j.tenant, j.repository, j.runner_name, j.look_at, j.state,
    extract(epoch FROM runyard_now() - j.enqueued_at)::double precision AS age, t.installation_id
FROM jobs j JOIN tenants t USING (tenant)
WHERE j.state IN ('waiting', 'queued', 'running') AND j.look_at <= runyard_now()
    AND (j.state = 'waiting' OR (j.state = 'queued' AND NOT j.verified) OR (j.state = 'running' AND %(running)s))
ORDER BY j.look_at, j.job_id LIMIT %(limit)s;
