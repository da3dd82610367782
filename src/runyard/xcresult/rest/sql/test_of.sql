-- One test of a project.
SELECT case_id::text AS "case", account, project, module, suite, name, identifier,
    extract(epoch FROM first_seen)::double precision AS first_seen,
    extract(epoch FROM last_seen)::double precision AS last_seen
FROM test_cases
WHERE case_id = ANY(%(cases)s::uuid[]) AND %(account)s IN ('', account) AND %(project)s IN ('', project)
ORDER BY case_id;
