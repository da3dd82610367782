-- What is written of an attempt before anything is done: a worker that dies leaves it.
INSERT INTO test_attempts (run_id, shard, attempt, owner, started_at)
VALUES (%(run_id)s, %(shard)s, %(attempt)s, %(owner)s, runyard_now())
