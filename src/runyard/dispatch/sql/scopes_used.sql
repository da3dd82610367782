-- Every scope that kept slots used, with the installation to read it by: one index probe for each.
-- An App that was installed again also manages the runners of its earlier installation.
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
)
SELECT u.scope, max(coalesce(t.installation_id, u.installation_id)) AS installation_id
FROM used u LEFT JOIN tenants t ON t.tenant = split_part(u.scope, '/', 2)
GROUP BY u.scope ORDER BY u.scope;
