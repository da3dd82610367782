-- Whether a tenant's jobs are let alone.
UPDATE tenants SET paused = %(paused)s WHERE tenant = %(tenant)s;
