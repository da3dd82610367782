-- Repetitions of some cases of a run, and of their arguments.
SELECT shard, number, argument, repetition, repetition_number, name, status, duration_ms FROM test_repetitions
WHERE run_id = %(run_id)s::uuid
    AND (shard, number) IN (SELECT unnest(%(shards)s::integer[]), unnest(%(numbers)s::integer[]))
ORDER BY shard, number, argument, repetition LIMIT %(limit)s;
