-- What is left of a tenant's budget on a platform. No limit row, no room.
SELECT
    l.vcpus - coalesce(sum(s.vcpus), 0)::integer AS vcpus,
    l.memory_gb - coalesce(sum(s.memory_gb), 0)::integer AS memory_gb
FROM tenant_limits l
LEFT JOIN slots s ON s.tenant = l.tenant AND s.platform = l.platform
    AND s.state IN ('offered', 'armed', 'executing', 'draining')
WHERE l.tenant = %(tenant)s AND l.platform = %(platform)s
GROUP BY l.vcpus, l.memory_gb;
