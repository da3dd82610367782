-- Register this tenant's runners at its repositories: GitHub has no such endpoint for the organisation.
UPDATE tenants SET mint_at = 'repo' WHERE tenant = %(tenant)s AND mint_at = 'org';
