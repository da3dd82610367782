-- Runs whose lease is over; locked, and those that somebody is writing at this moment left out.
SELECT run_id::text AS run_id, shard, state, attempt, claims, spent, lease_owner AS owner, true AS lapsed
FROM test_runs WHERE state = 'processing' AND lease_until < runyard_now()
ORDER BY lease_until, run_id, shard LIMIT %(most)s
FOR UPDATE SKIP LOCKED
