-- Move a tenant on in virtual time.
UPDATE tenants SET vtime = %(vtime)s WHERE tenant = %(tenant)s;
