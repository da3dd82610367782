-- Whether there is such a run at all, locked by somebody or not.
SELECT state FROM test_runs WHERE run_id = %(run_id)s AND shard = %(shard)s
