-- The oldest offerable jobs of each tenant that has any, a few per tenant.
SELECT t.tenant, t.installation_id, t.kind, t.weight, t.vtime, q.job_id, q.repository, q.labels
FROM tenants t CROSS JOIN LATERAL (
    SELECT j.job_id, j.repository, j.labels, j.enqueued_at FROM jobs j
    WHERE j.tenant = t.tenant AND j.state = 'queued' AND j.verified
    ORDER BY j.enqueued_at, j.job_id LIMIT %(per_tenant)s
) q
ORDER BY t.tenant, q.enqueued_at, q.job_id;
