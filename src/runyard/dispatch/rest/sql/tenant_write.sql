-- Write a tenant's weight and pause.
UPDATE tenants SET weight = %(weight)s, paused = %(paused)s WHERE tenant = %(tenant)s;
