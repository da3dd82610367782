-- Modules of a run, shard by shard.
SELECT module.shard AS shard_index, module.module AS number, module.name, module.status, module.duration_ms,
    module.suites, module.cases, module.failed, module.skipped, module.flaky, module.average_case_ms
FROM test_modules AS module JOIN test_runs AS run USING (run_id, shard)
WHERE module.run_id = %(run_id)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
    AND (module.shard, module.module) > (%(shard)s, %(number)s)
ORDER BY module.shard, module.module LIMIT %(limit)s;
