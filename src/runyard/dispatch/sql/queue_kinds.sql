-- The queued jobs of each repository and set of labels: their number, the age of the oldest and of the oldest offerable
-- one, and whether they are held (the tenant is paused, or GitHub refuses runners). One index probe per tenant and kind,
-- and at most `most` jobs of each are counted, so the length of a queue does not matter.
WITH RECURSIVE queuing AS (
    (SELECT j.tenant FROM jobs j WHERE j.state = 'queued' ORDER BY j.tenant LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.tenant FROM jobs j WHERE j.state = 'queued' AND j.tenant > queuing.tenant ORDER BY j.tenant LIMIT 1
    )
    FROM queuing WHERE queuing.tenant IS NOT NULL
), found AS (
    SELECT q.tenant, k.repository, k.labels FROM queuing q CROSS JOIN LATERAL (
        WITH RECURSIVE kinds AS (
            (
                SELECT j.repository, j.labels FROM jobs j WHERE j.tenant = q.tenant AND j.state = 'queued'
                ORDER BY j.repository, j.labels LIMIT 1
            )
            UNION ALL
            SELECT next.repository, next.labels FROM kinds CROSS JOIN LATERAL (
                SELECT j.repository, j.labels FROM jobs j
                WHERE j.tenant = q.tenant AND j.state = 'queued'
                    AND (j.repository, j.labels) > (kinds.repository, kinds.labels)
                ORDER BY j.repository, j.labels LIMIT 1
            ) next
        )
        SELECT kinds.repository, kinds.labels FROM kinds LIMIT %(kinds)s
    ) k
    WHERE q.tenant IS NOT NULL
)
SELECT k.tenant, k.repository, k.labels,
    (
        SELECT count(*)::integer FROM (
            SELECT FROM jobs j
            WHERE j.tenant = k.tenant AND j.repository = k.repository AND j.labels = k.labels AND j.state = 'queued'
            LIMIT %(most)s
        ) counted
    ) AS jobs,
    (
        SELECT extract(epoch FROM runyard_now() - j.enqueued_at)::double precision FROM jobs j
        WHERE j.tenant = k.tenant AND j.repository = k.repository AND j.labels = k.labels AND j.state = 'queued'
        ORDER BY j.enqueued_at LIMIT 1
    ) AS oldest,
    coalesce((
        SELECT extract(epoch FROM runyard_now() - j.enqueued_at)::double precision FROM jobs j
        WHERE j.tenant = k.tenant AND j.repository = k.repository AND j.labels = k.labels AND j.state = 'queued'
            AND j.verified
        ORDER BY j.enqueued_at LIMIT 1
    ), 0) AS offerable,
    t.paused OR EXISTS (
        SELECT FROM exclusions e WHERE e.until > runyard_now()
            AND ((e.kind = 'repository' AND e.name = k.repository) OR (e.kind = 'account' AND e.name = k.tenant))
    ) AS held
FROM found k JOIN tenants t ON t.tenant = k.tenant ORDER BY k.tenant, k.repository, k.labels;
