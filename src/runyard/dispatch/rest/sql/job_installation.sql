-- The run, state and installation of a job.
SELECT j.job_id, j.tenant, j.repository, j.run_id, j.state, t.installation_id
FROM jobs j JOIN tenants t ON t.tenant = j.tenant WHERE j.job_id = %(job)s;
