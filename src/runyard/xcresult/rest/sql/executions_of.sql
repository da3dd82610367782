-- Results of a case in the shards and test plans of a run.
SELECT ran.shard AS shard_index, ran.number, ran.name, ran.status, ran.duration_ms, ran.is_flaky, ran.is_quarantined
FROM test_case_runs AS ran JOIN test_runs AS run USING (run_id, shard)
WHERE ran.run_id = %(run_id)s::uuid AND ran.case_id = %(case)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
ORDER BY ran.shard, ran.number LIMIT %(limit)s;
