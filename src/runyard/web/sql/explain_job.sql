-- One job, with the time of its next check at GitHub and its tenant's installation.
SELECT j.job_id, j.tenant, j.repository, j.labels, j.state, j.verified, j.runner_name, j.conclusion, j.trust,
    t.installation_id,
    extract(epoch FROM j.enqueued_at)::double precision AS enqueued_at,
    extract(epoch FROM j.look_at)::double precision AS look_at,
    extract(epoch FROM j.started_at)::double precision AS started_at,
    extract(epoch FROM j.completed_at)::double precision AS completed_at
FROM jobs j JOIN tenants t ON t.tenant = j.tenant
WHERE j.job_id = %(job_id)s;
