-- Records the end of an attempt once; an end that is recorded is not changed.
UPDATE test_attempts
SET ended_at = runyard_now(), outcome = %(outcome)s, reason_code = %(code)s, reason_detail = %(detail)s::jsonb
WHERE run_id = %(run_id)s AND shard = %(shard)s AND attempt = %(attempt)s AND outcome = 'running'
