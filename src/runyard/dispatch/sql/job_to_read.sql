-- What is needed to read a job at GitHub.
SELECT j.job_id, j.tenant, j.repository, j.runner_name, j.look_at, j.state,
    extract(epoch FROM runyard_now() - j.enqueued_at)::double precision AS age, t.installation_id
FROM jobs j JOIN tenants t USING (tenant)
WHERE j.job_id = %(job_id)s;
