-- Jobs about which GitHub must be asked: given back and not looked at since, or due for another look.
SELECT j.job_id, j.tenant, j.repository, j.runner_name, j.look_at, t.installation_id
FROM jobs j JOIN tenants t USING (tenant)
WHERE j.state IN ('waiting', 'queued', 'running') AND j.look_at <= runyard_now()
ORDER BY j.look_at, j.job_id LIMIT %(limit)s;
