-- How an attempt ended, for whoever did not hear of its commit.
SELECT outcome FROM test_attempts WHERE run_id = %(run_id)s AND shard = %(shard)s AND attempt = %(attempt)s
