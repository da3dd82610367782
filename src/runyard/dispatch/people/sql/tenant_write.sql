-- What people may change of a tenant's own row.
UPDATE tenants SET weight = %(weight)s, paused = %(paused)s WHERE tenant = %(tenant)s;
