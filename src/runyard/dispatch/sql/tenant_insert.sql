-- Get to know a tenant by its first webhook.
INSERT INTO tenants (tenant, installation_id, kind, vtime)
SELECT %(tenant)s, %(installation_id)s, %(kind)s, coalesce((SELECT max(vtime) FROM tenants), 0)
ON CONFLICT (tenant) DO UPDATE SET installation_id = excluded.installation_id
WHERE tenants.installation_id <> excluded.installation_id;
