-- The different kinds of offerable jobs: of one repository, with one set of labels. One probe of the index for each tenant
-- that has any and one for each kind, however many jobs and tenants there are.
WITH RECURSIVE queuing AS (
    (SELECT j.tenant FROM jobs j WHERE j.state = 'queued' AND j.verified ORDER BY j.tenant LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.tenant FROM jobs j
        WHERE j.state = 'queued' AND j.verified AND j.tenant > queuing.tenant ORDER BY j.tenant LIMIT 1
    )
    FROM queuing WHERE queuing.tenant IS NOT NULL
)
SELECT q.tenant, k.repository, k.labels, t.paused FROM queuing q JOIN tenants t USING (tenant) CROSS JOIN LATERAL (
    WITH RECURSIVE kinds AS (
        (
            SELECT j.repository, j.labels FROM jobs j WHERE j.tenant = q.tenant AND j.state = 'queued' AND j.verified
            ORDER BY j.repository, j.labels LIMIT 1
        )
        UNION ALL
        SELECT next.repository, next.labels FROM kinds CROSS JOIN LATERAL (
            SELECT j.repository, j.labels FROM jobs j
            WHERE j.tenant = q.tenant AND j.state = 'queued' AND j.verified
                AND (j.repository, j.labels) > (kinds.repository, kinds.labels)
            ORDER BY j.repository, j.labels LIMIT 1
        ) next
    )
    SELECT kinds.repository, kinds.labels FROM kinds LIMIT %(limit)s
) k
ORDER BY q.tenant, k.repository, k.labels;
