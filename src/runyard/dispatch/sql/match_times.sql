-- The virtual times of these tenants (empty repository) and their repositories, on each platform.
SELECT tenant, repository, platform, vtime FROM virtual_times
WHERE tenant = ANY(%(tenants)s::text[]) AND repository = ANY(%(repositories)s::text[])
ORDER BY tenant, repository, platform;
