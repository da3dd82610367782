-- A tenant, locked: the first lock of every transition that concerns one.
SELECT tenant, installation_id, kind, weight FROM tenants WHERE tenant = %(tenant)s FOR UPDATE;
