-- Where runners of a tenant may be registered: at the organisation, or at a person's repositories.
SELECT 'orgs/' || t.tenant AS scope, t.installation_id FROM tenants t
WHERE t.tenant = %(tenant)s AND t.kind = 'Organization'
UNION
SELECT 'repos/' || j.repository, t.installation_id FROM tenants t JOIN jobs j ON j.tenant = t.tenant
WHERE t.tenant = %(tenant)s AND t.kind <> 'Organization'
ORDER BY scope;
