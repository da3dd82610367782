-- Some of a tenant's repositories.
SELECT repository, weight, priority FROM repositories
WHERE tenant = %(tenant)s AND repository = ANY(%(repositories)s::text[]) ORDER BY repository;
