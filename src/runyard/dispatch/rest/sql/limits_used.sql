-- The limits of these tenants, and how much of each is used.
SELECT l.tenant, l.platform, l.vcpus, l.memory_gb,
    coalesce(sum(s.vcpus), 0)::integer AS vcpus_used,
    coalesce(sum(s.memory_gb), 0)::integer AS memory_gb_used
FROM tenant_limits l
LEFT JOIN slots s ON s.tenant = l.tenant AND s.platform = l.platform
    AND s.state IN ('offered', 'armed', 'executing', 'draining')
WHERE l.tenant = ANY(%(tenants)s::text[])
GROUP BY l.tenant, l.platform, l.vcpus, l.memory_gb ORDER BY l.tenant, l.platform;
