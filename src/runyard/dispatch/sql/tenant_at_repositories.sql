-- The organisation's endpoint does not exist for us: register this tenant's runners at its repositories.
UPDATE tenants SET mint_at = 'repo' WHERE tenant = %(tenant)s AND mint_at = 'org';
