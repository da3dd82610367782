-- One shard of a run within a scope: what an upload needs.
SELECT state, storage_key, upload_gone, account, project
FROM test_runs
WHERE run_id = %(run_id)s::uuid AND shard = %(shard)s
    AND %(account)s IN ('', account) AND %(project)s IN ('', project);
