-- Tests of a project, by name.
SELECT case_id::text AS "case", account, project, module, suite, name, identifier,
    extract(epoch FROM first_seen)::double precision AS first_seen,
    extract(epoch FROM last_seen)::double precision AS last_seen
FROM test_cases
WHERE account = %(account)s AND project = %(project)s
    AND (%(module)s = '' OR module = %(module)s)
    AND (%(suite)s = '' OR suite = %(suite)s)
    AND (%(name)s = '' OR strpos(lower(name), lower(%(name)s)) > 0)
    AND (
        %(after)s::uuid IS NULL
        OR (module, suite, name, case_id) > (
            SELECT last.module, last.suite, last.name, last.case_id FROM test_cases AS last
            WHERE last.case_id = %(after)s::uuid AND last.account = %(account)s AND last.project = %(project)s
        )
    )
ORDER BY module, suite, name, case_id LIMIT %(limit)s;
