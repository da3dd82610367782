-- Some of a tenant's repositories, in any case: GitHub's names have none.
SELECT repository, weight, priority FROM repositories
WHERE tenant = %(tenant)s AND lower(repository) = ANY(%(repositories)s::text[]) ORDER BY repository;
