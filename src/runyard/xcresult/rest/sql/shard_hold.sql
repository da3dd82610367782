-- One shard of a run, locked until the end of the transaction.
SELECT state, storage_key, upload_gone FROM test_runs
WHERE run_id = %(run_id)s::uuid AND shard = %(shard)s FOR UPDATE;
