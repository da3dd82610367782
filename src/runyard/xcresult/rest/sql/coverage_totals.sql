-- Coverage of each shard's targets.
SELECT target.shard, target.name, target.covered_lines, target.executable_lines
FROM coverage_targets AS target JOIN test_runs AS run USING (run_id, shard)
WHERE target.run_id = %(run_id)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
ORDER BY target.shard, target.target;
