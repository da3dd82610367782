-- Facts about the bundles of a run.
SELECT destinations, errors, warnings, build_issues FROM test_runs
WHERE run_id = %(run_id)s::uuid AND %(account)s IN ('', account) AND %(project)s IN ('', project)
ORDER BY shard;
