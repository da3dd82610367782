-- The claim of an owner, for a worker that does not know whether its commit succeeded.
SELECT run_id::text AS run_id, shard, attempt, claims, spent, lease_owner, queue_job, account, project, storage_key,
    archive_bytes, scheme, ran_at, queued_at, started_at
FROM test_runs WHERE lease_owner = %(owner)s AND state = 'processing'
