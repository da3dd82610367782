-- Cases of a run, shard by shard.
SELECT ran.case_id::text AS "case", ran.name, module.name AS module, COALESCE(suite.name, '') AS suite,
    ran.shard AS shard_index, ran.number, ran.status, ran.duration_ms, ran.is_flaky, ran.is_quarantined
FROM test_case_runs AS ran
JOIN test_modules AS module USING (run_id, shard, module)
JOIN test_runs AS run USING (run_id, shard)
LEFT JOIN test_suites AS suite
    ON suite.run_id = ran.run_id AND suite.shard = ran.shard AND suite.suite = ran.suite
WHERE ran.run_id = %(run_id)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
    AND (%(status)s = '' OR ran.status = %(status)s)
    AND (NOT %(flaky)s OR ran.is_flaky)
    AND (%(module)s = '' OR module.name = %(module)s)
    AND (%(suite)s = '' OR suite.name = %(suite)s)
    AND (%(name)s = '' OR strpos(lower(ran.name), lower(%(name)s)) > 0)
    AND (ran.shard, ran.number) > (%(shard)s, %(number)s)
ORDER BY ran.shard, ran.number LIMIT %(limit)s;
