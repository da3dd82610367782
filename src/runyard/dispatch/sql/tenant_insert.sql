-- Insert a tenant at its first webhook, with the default limits. A new installation may have other permissions, so runners
-- are then registered at the organisation again.
WITH seen AS (
    INSERT INTO tenants (tenant, installation_id, kind, account_id)
    VALUES (%(tenant)s, %(installation_id)s, %(kind)s, %(account_id)s)
    ON CONFLICT (tenant) DO UPDATE SET installation_id = excluded.installation_id, kind = excluded.kind,
        mint_at = CASE WHEN (tenants.installation_id, tenants.kind) <> (excluded.installation_id, excluded.kind)
            THEN 'org' ELSE tenants.mint_at END,
        account_id = CASE excluded.account_id WHEN 0 THEN tenants.account_id ELSE excluded.account_id END
    WHERE (tenants.installation_id, tenants.kind) <> (excluded.installation_id, excluded.kind)
        OR excluded.account_id NOT IN (0, tenants.account_id)
    RETURNING tenant
)
INSERT INTO tenant_limits (tenant, platform, vcpus, memory_gb)
SELECT seen.tenant, l.platform, l.vcpus, l.memory_gb
FROM seen, json_to_recordset(%(limits)s::json) AS l (platform text, vcpus integer, memory_gb integer)
ORDER BY l.platform
ON CONFLICT DO NOTHING;
