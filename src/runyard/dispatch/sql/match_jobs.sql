-- The oldest offerable jobs of each of these tenants' sets of labels, a few of each.
SELECT t.tenant, t.installation_id, t.kind, t.weight, t.vtime, q.job_id, q.repository, q.labels
FROM unnest(%(tenants)s::text[], %(kinds)s::text[]) AS k (tenant, labels)
JOIN tenants t ON t.tenant = k.tenant
CROSS JOIN LATERAL (
    SELECT j.job_id, j.repository, j.labels, j.enqueued_at FROM jobs j
    WHERE j.tenant = k.tenant AND j.labels = string_to_array(k.labels, chr(31))
        AND j.state = 'queued' AND j.verified
    ORDER BY j.enqueued_at, j.job_id LIMIT %(per_kind)s
) q
ORDER BY t.tenant, q.enqueued_at, q.job_id;
