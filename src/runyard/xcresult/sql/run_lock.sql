-- Locks the row unless another transaction holds it: that one may wait for the job that we hold.
SELECT state FROM test_runs WHERE run_id = %(run_id)s AND shard = %(shard)s FOR UPDATE SKIP LOCKED
