-- The recorded end of an attempt, for a worker that does not know whether its commit succeeded.
SELECT outcome FROM test_attempts WHERE run_id = %(run_id)s AND shard = %(shard)s AND attempt = %(attempt)s
