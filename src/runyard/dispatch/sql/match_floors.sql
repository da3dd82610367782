-- Where in each tenant's own virtual time the repository began that was served last.
SELECT t.tenant, coalesce(
    (SELECT r.vstart FROM repositories r WHERE r.tenant = t.tenant ORDER BY r.vstart DESC LIMIT 1), 0
) AS floor
FROM unnest(%(tenants)s::text[]) AS t (tenant) ORDER BY t.tenant;
