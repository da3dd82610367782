-- A repository's share and priority; one whose jobs are still to come is known from now on.
INSERT INTO repositories (tenant, repository, weight, priority)
VALUES (%(tenant)s, %(repository)s, %(weight)s, %(priority)s)
ON CONFLICT (tenant, repository) DO UPDATE SET weight = excluded.weight, priority = excluded.priority;
