-- Whose run it is, if there is one of that id; every shard says the same.
SELECT account, project FROM test_runs WHERE run_id = %(run_id)s::uuid ORDER BY shard LIMIT 1;
