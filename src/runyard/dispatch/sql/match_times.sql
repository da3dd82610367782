-- Where in virtual time these tenants (under no repository) and their repositories stand, on each platform.
SELECT tenant, repository, platform, vtime FROM virtual_times
WHERE tenant = ANY(%(tenants)s::text[]) AND repository = ANY(%(repositories)s::text[])
ORDER BY tenant, repository, platform;
