-- Move a repository on in its tenant's virtual time, from where it stands or from the floor.
UPDATE repositories SET
    vstart = greatest(vtime, %(floor)s::double precision),
    vtime = greatest(vtime, %(floor)s::double precision) + %(cost)s::double precision / weight
WHERE tenant = %(tenant)s AND repository = %(repository)s;
