-- Tenants by name, after a given one.
SELECT tenant, kind, installation_id, weight, paused, mint_at FROM tenants
WHERE tenant > %(after)s AND (NOT %(only_paused)s::boolean OR paused)
ORDER BY tenant LIMIT %(limit)s;
