-- Suites of a run, shard by shard.
SELECT suite.shard AS shard_index, suite.suite AS number, module.name AS module, suite.name, suite.status,
    suite.duration_ms, suite.cases, suite.failed, suite.skipped, suite.flaky, suite.average_case_ms
FROM test_suites AS suite
JOIN test_modules AS module USING (run_id, shard, module)
JOIN test_runs AS run USING (run_id, shard)
WHERE suite.run_id = %(run_id)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
    AND (%(module)s = '' OR module.name = %(module)s)
    AND (suite.shard, suite.suite) > (%(shard)s, %(number)s)
ORDER BY suite.shard, suite.suite LIMIT %(limit)s;
