-- The virtual time at which the one that was served last began: of all tenants on each platform (empty tenant), and of
-- the repositories within each of these tenants.
SELECT '' AS tenant, p.platform, coalesce((
    SELECT v.vstart FROM virtual_times v WHERE v.repository = '' AND v.platform = p.platform
    ORDER BY v.vstart DESC LIMIT 1
), 0) AS floor
FROM unnest(%(platforms)s::text[]) AS p (platform)
UNION ALL
SELECT t.tenant, p.platform, coalesce((
    SELECT v.vstart FROM virtual_times v
    WHERE v.repository <> '' AND v.tenant = t.tenant AND v.platform = p.platform
    ORDER BY v.vstart DESC LIMIT 1
), 0)
FROM unnest(%(tenants)s::text[]) AS t (tenant) CROSS JOIN unnest(%(platforms)s::text[]) AS p (platform)
ORDER BY tenant, platform;
