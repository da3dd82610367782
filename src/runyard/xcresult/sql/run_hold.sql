-- The fence: locks the row by its claim until the end of the transaction that writes results.
SELECT state FROM test_runs
WHERE run_id = %(run_id)s AND shard = %(shard)s
    AND state = 'processing' AND attempt = %(attempt)s AND lease_owner = %(owner)s
FOR UPDATE
