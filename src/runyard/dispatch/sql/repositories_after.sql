-- Some known repositories, in order, after a given one.
SELECT r.repository, t.installation_id FROM repositories r JOIN tenants t USING (tenant)
WHERE (r.tenant, r.repository) > (split_part(%(after)s, '/', 1), %(after)s)
ORDER BY r.tenant, r.repository LIMIT %(limit)s;
