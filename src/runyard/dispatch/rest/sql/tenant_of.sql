-- One tenant.
SELECT tenant, kind, installation_id, weight, paused, mint_at FROM tenants WHERE tenant = %(tenant)s;
