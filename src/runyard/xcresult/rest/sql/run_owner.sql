-- Account and project of a run; the same for every shard.
SELECT account, project FROM test_runs WHERE run_id = %(run_id)s::uuid ORDER BY shard LIMIT 1;
