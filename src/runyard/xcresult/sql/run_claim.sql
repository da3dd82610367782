-- Claims a queued run until the lease expires; a run in another state is not changed.
UPDATE test_runs
SET state = 'processing', attempt = attempt + 1, claims = claims + 1, lease_owner = %(owner)s, due_at = NULL, queue_job = %(job)s,
    lease_until = runyard_now() + make_interval(secs => %(lease)s), started_at = runyard_now()
WHERE run_id = %(run_id)s AND shard = %(shard)s AND state = 'queued'
RETURNING run_id::text AS run_id, shard, attempt, claims, spent, lease_owner, queue_job, account, project, storage_key,
    archive_bytes, scheme, ran_at, queued_at, started_at
