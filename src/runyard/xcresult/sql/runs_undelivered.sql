-- Queued runs without a pending delivery; locked.
SELECT run.run_id::text AS run_id, run.shard, run.state, run.attempt, run.claims, run.spent, run.due_at
FROM test_runs AS run
WHERE run.state = 'queued' AND NOT EXISTS (
    SELECT FROM procrastinate_jobs AS job
    WHERE job.queueing_lock = %(prefix)s || run.run_id::text || '/' || run.shard::text AND job.status = 'todo'
)
ORDER BY run.due_at, run.run_id, run.shard LIMIT %(most)s
FOR UPDATE OF run SKIP LOCKED
