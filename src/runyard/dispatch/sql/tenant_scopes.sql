-- Where runners of a tenant may be registered: at the organisation, at its repositories, or at both.
SELECT 'orgs/' || t.tenant AS scope, t.installation_id FROM tenants t
WHERE t.tenant = %(tenant)s AND t.kind = 'Organization'
UNION
SELECT 'repos/' || r.repository, t.installation_id FROM tenants t JOIN repositories r USING (tenant)
WHERE t.tenant = %(tenant)s AND (t.kind <> 'Organization' OR t.mint_at = 'repo')
ORDER BY scope;
