-- Get to know a tenant by its first webhook. It starts at the floor, as everybody who was idle. Another installation may
-- have other rights: then it is tried at the organisation first once more.
INSERT INTO tenants (tenant, installation_id, kind)
VALUES (%(tenant)s, %(installation_id)s, %(kind)s)
ON CONFLICT (tenant) DO UPDATE SET installation_id = excluded.installation_id, kind = excluded.kind, mint_at = 'org'
WHERE (tenants.installation_id, tenants.kind) <> (excluded.installation_id, excluded.kind);
