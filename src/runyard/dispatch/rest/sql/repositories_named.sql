-- Some repositories of a tenant by name; GitHub's names are case-insensitive.
SELECT repository, weight, priority FROM repositories
WHERE tenant = %(tenant)s AND lower(repository) = ANY(%(repositories)s::text[]) ORDER BY repository;
