-- Every scope in which our runners may be registered, with its installations: one index probe for each.
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
SELECT scope, installation_id FROM used ORDER BY scope, installation_id;
