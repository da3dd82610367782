-- The next offerable jobs of each of these kinds, a few of each: by priority, then by age.
SELECT t.tenant, t.installation_id, t.kind = 'Organization' AND t.mint_at = 'org' AS at_org, t.weight,
    k.repository, coalesce(r.weight, 1) AS repository_weight, q.job_id, q.labels, q.priority
FROM unnest(%(tenants)s::text[], %(repositories)s::text[], %(kinds)s::text[]) AS k (tenant, repository, labels)
JOIN tenants t ON t.tenant = k.tenant
LEFT JOIN repositories r ON r.tenant = k.tenant AND r.repository = k.repository
CROSS JOIN LATERAL (
    SELECT j.job_id, j.labels, j.priority, j.enqueued_at FROM jobs j
    WHERE j.tenant = k.tenant AND j.repository = k.repository AND j.labels = string_to_array(k.labels, chr(31))
        AND j.state = 'queued' AND j.verified
    ORDER BY j.priority DESC, j.enqueued_at, j.job_id LIMIT %(per_kind)s
) q
ORDER BY t.tenant, k.repository, q.priority DESC, q.enqueued_at, q.job_id;
