-- Whether the run exists, locked or not.
SELECT state FROM test_runs WHERE run_id = %(run_id)s AND shard = %(shard)s
