-- Where in virtual time the one began that was served last: on each platform the tenant among all (under no name), and in
-- each of these tenants' own time the repository.
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
