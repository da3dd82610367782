-- Records an attempt before its work begins: if the worker dies, the record stays.
INSERT INTO test_attempts (run_id, shard, attempt, owner, started_at)
VALUES (%(run_id)s, %(shard)s, %(attempt)s, %(owner)s, runyard_now())
