-- A tenant's repositories.
SELECT repository, weight, priority FROM repositories
WHERE tenant = %(tenant)s ORDER BY repository LIMIT %(limit)s;
