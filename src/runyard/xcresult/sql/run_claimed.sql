-- A claim of which we did not hear whether it was committed.
SELECT run_id::text AS run_id, shard, attempt, claims, spent, lease_owner, queue_job, account, project, storage_key,
    archive_bytes, scheme, ran_at, queued_at, started_at
FROM test_runs WHERE lease_owner = %(owner)s AND state = 'processing'
