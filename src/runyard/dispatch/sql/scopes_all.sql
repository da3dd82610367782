-- Every scope in which runners may be registered, of all tenants and of all kept slots, with the installation to read it by.
-- "used": a slot was assigned to it; "open": one that is not closed. An App that was installed again also reads the scopes of its earlier installation.
WITH RECURSIVE used AS (
    (
        SELECT s.scope, s.installation_id FROM slots s WHERE s.scope <> ''
        ORDER BY s.scope, s.installation_id LIMIT 1
    )
    UNION ALL
    SELECT next.scope, next.installation_id FROM used CROSS JOIN LATERAL (
        SELECT s.scope, s.installation_id FROM slots s
        WHERE s.scope <> '' AND (s.scope, s.installation_id) > (used.scope, used.installation_id)
        ORDER BY s.scope, s.installation_id LIMIT 1
    ) next
), known AS (
    SELECT 'orgs/' || t.tenant AS scope, t.installation_id, false AS used FROM tenants t WHERE t.kind = 'Organization'
    UNION ALL
    SELECT 'repos/' || r.repository, t.installation_id, false FROM tenants t JOIN repositories r USING (tenant)
    WHERE t.kind <> 'Organization' OR t.mint_at = 'repo'
    UNION ALL
    SELECT u.scope, coalesce(t.installation_id, u.installation_id), true
    FROM used u LEFT JOIN tenants t ON t.tenant = split_part(u.scope, '/', 2)
)
SELECT scope, max(installation_id) AS installation_id, bool_or(used) AS used,
    lower(scope) IN (SELECT lower(s.scope) FROM slots s WHERE s.state <> 'closed') AS open
FROM known GROUP BY scope ORDER BY scope;
