-- Runs whose lease has expired; locked. Rows that another transaction holds are skipped.
SELECT run_id::text AS run_id, shard, state, attempt, claims, spent, lease_owner AS owner, true AS lapsed
FROM test_runs WHERE state = 'processing' AND lease_until < runyard_now()
ORDER BY lease_until, run_id, shard LIMIT %(most)s
FOR UPDATE SKIP LOCKED
