-- Increase the virtual times of tenants (empty repository) and repositories by the cost of their new runners, starting
-- from the floor at least. `vstart` is where the last runner of each began. The tenants are locked.
INSERT INTO virtual_times (tenant, repository, platform, vtime, vstart)
SELECT c.tenant, c.repository, c.platform,
    greatest(coalesce(v.vtime, 0), c.floor) + c.cost / w.weight,
    greatest(coalesce(v.vtime, 0), c.floor) + (c.cost - c.last) / w.weight
FROM json_to_recordset(%(charges)s::json) AS c (
    tenant text, repository text, platform text, floor double precision, cost double precision, last double precision
)
JOIN tenants t ON t.tenant = c.tenant
LEFT JOIN repositories r ON r.tenant = c.tenant AND r.repository = c.repository
LEFT JOIN virtual_times v ON v.tenant = c.tenant AND v.repository = c.repository AND v.platform = c.platform
CROSS JOIN LATERAL (
    SELECT CASE WHEN c.repository = '' THEN t.weight ELSE coalesce(r.weight, 1) END AS weight
) w
ON CONFLICT (tenant, repository, platform) DO UPDATE SET vtime = excluded.vtime, vstart = excluded.vstart;
