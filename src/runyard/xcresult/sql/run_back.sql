-- Queues the run again, by the claim that ends.
UPDATE test_runs
SET state = 'queued', due_at = runyard_now() + make_interval(secs => %(delay)s), lease_owner = '', lease_until = NULL,
    spent = %(spent)s, reason_code = %(code)s, reason_detail = %(detail)s::jsonb
WHERE run_id = %(run_id)s AND shard = %(shard)s
    AND state = 'processing' AND attempt = %(attempt)s AND lease_owner = %(owner)s
RETURNING due_at, queue_job
