-- Move a tenant on in virtual time, from where it stands or from the floor.
UPDATE tenants SET
    vstart = greatest(vtime, %(floor)s::double precision),
    vtime = greatest(vtime, %(floor)s::double precision) + %(cost)s::double precision / weight
WHERE tenant = %(tenant)s;
