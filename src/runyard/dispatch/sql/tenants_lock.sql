-- Tenants in the order of their names, locked, and the era of the database.
SELECT tenant, pg_postmaster_start_time()::text AS era FROM tenants
WHERE tenant = ANY(%(tenants)s::text[]) ORDER BY tenant COLLATE "C" FOR UPDATE;
