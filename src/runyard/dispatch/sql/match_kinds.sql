-- The kinds of offerable jobs: one repository and one set of labels each. One index probe per tenant and per kind, whatever
-- the number of jobs. Of each tenant a limited number of kinds that name the dispatch label of a pool (of all, if none is
-- given); for a tenant with more kinds, those after the end of the last snapshot.
WITH RECURSIVE queuing AS (
    (SELECT j.tenant FROM jobs j WHERE j.state = 'queued' AND j.verified ORDER BY j.tenant LIMIT 1)
    UNION ALL
    SELECT (
        SELECT j.tenant FROM jobs j
        WHERE j.state = 'queued' AND j.verified AND j.tenant > queuing.tenant ORDER BY j.tenant LIMIT 1
    )
    FROM queuing WHERE queuing.tenant IS NOT NULL
)
SELECT q.tenant, k.repository, k.labels, t.paused
FROM queuing q JOIN tenants t USING (tenant)
LEFT JOIN unnest(%(tenants)s::text[], %(repositories)s::text[], %(kinds)s::text[]) AS a (tenant, repository, labels)
    USING (tenant)
CROSS JOIN LATERAL (
    WITH RECURSIVE kinds AS (
        (
            SELECT j.repository, j.labels FROM jobs j
            WHERE j.tenant = q.tenant AND j.state = 'queued' AND j.verified
                AND (j.repository, j.labels)
                    > (coalesce(a.repository, ''), string_to_array(coalesce(a.labels, ''), chr(31)))
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
    SELECT kinds.repository, kinds.labels FROM kinds
    WHERE %(dispatch)s::text[] IS NULL
        OR EXISTS (SELECT FROM unnest(kinds.labels) AS l (label) WHERE lower(l.label) = ANY(%(dispatch)s::text[]))
    LIMIT %(limit)s
) k
ORDER BY q.tenant, k.repository, k.labels;
