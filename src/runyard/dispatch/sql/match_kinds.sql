-- The different sets of labels that each tenant has offerable jobs for. One probe of the index for each tenant that
-- has any and one for each set, however many jobs and tenants there are.
WITH RECURSIVE queuing AS (
    (SELECT j.tenant FROM jobs j WHERE j.state = 'queued' AND j.verified ORDER BY j.tenant LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.tenant FROM jobs j
        WHERE j.state = 'queued' AND j.verified AND j.tenant > queuing.tenant ORDER BY j.tenant LIMIT 1
    )
    FROM queuing WHERE queuing.tenant IS NOT NULL
)
SELECT t.tenant, k.labels FROM queuing t CROSS JOIN LATERAL (
    WITH RECURSIVE kinds AS (
        (
            SELECT j.labels FROM jobs j WHERE j.tenant = t.tenant AND j.state = 'queued' AND j.verified
            ORDER BY j.labels LIMIT 1
        )
        UNION ALL
        SELECT (
            SELECT j.labels FROM jobs j
            WHERE j.tenant = t.tenant AND j.state = 'queued' AND j.verified AND j.labels > kinds.labels
            ORDER BY j.labels LIMIT 1
        )
        FROM kinds WHERE kinds.labels IS NOT NULL
    )
    SELECT kinds.labels FROM kinds WHERE kinds.labels IS NOT NULL LIMIT %(limit)s
) k
ORDER BY t.tenant, k.labels;
