-- A heartbeat by the claim; no row: another worker has taken the run.
UPDATE test_runs SET lease_until = runyard_now() + make_interval(secs => %(lease)s)
WHERE run_id = %(run_id)s AND shard = %(shard)s
    AND state = 'processing' AND attempt = %(attempt)s AND lease_owner = %(owner)s
