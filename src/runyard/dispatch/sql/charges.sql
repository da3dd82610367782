-- Move tenants on in virtual time, each from where it stands or from the floor, by what all of its new runners cost;
-- and within each of them its repositories. Where the last runner of each began is kept.
WITH tenants_moved AS (
    UPDATE tenants t SET
        vstart = greatest(t.vtime, c.floor) + (c.cost - c.last) / t.weight,
        vtime = greatest(t.vtime, c.floor) + c.cost / t.weight
    FROM json_to_recordset(%(tenants)s::json) AS c (
        tenant text, floor double precision, cost double precision, last double precision
    )
    WHERE t.tenant = c.tenant
)
UPDATE repositories r SET
    vstart = greatest(r.vtime, c.floor) + (c.cost - c.last) / r.weight,
    vtime = greatest(r.vtime, c.floor) + c.cost / r.weight
FROM json_to_recordset(%(repositories)s::json) AS c (
    tenant text, repository text, floor double precision, cost double precision, last double precision
)
WHERE r.tenant = c.tenant AND r.repository = c.repository;
