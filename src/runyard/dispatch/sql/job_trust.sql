-- What is known about the origin of a job's code, and where to read it at GitHub.
SELECT j.job_id, j.trust, j.repository, j.run_id, t.installation_id, t.account_id
FROM jobs j JOIN tenants t ON t.tenant = j.tenant
WHERE j.job_id = %(job_id)s;
