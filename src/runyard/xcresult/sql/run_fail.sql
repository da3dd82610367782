-- Marks the run as failed, by the claim that ends. Results of an earlier processing are not kept.
UPDATE test_runs
SET state = 'failed_processing', finished_at = runyard_now(), lease_owner = '', lease_until = NULL, spent = %(spent)s,
    reason_code = %(code)s, reason_detail = %(detail)s::jsonb, status = '', duration_ms = 0, is_flaky = false,
    cases = 0, failed = 0, skipped = 0, flaky = 0, destinations = '[]', errors = '[]', warnings = '[]',
    build_issues = '[]', attachments_dropped = 0, covered_lines = NULL, executable_lines = NULL
WHERE run_id = %(run_id)s AND shard = %(shard)s
    AND state = 'processing' AND attempt = %(attempt)s AND lease_owner = %(owner)s
RETURNING queue_job
