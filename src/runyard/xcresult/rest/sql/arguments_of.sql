-- Arguments of some cases of a run.
SELECT shard, number, argument, name, status, duration_ms FROM test_arguments
WHERE run_id = %(run_id)s::uuid
    AND (shard, number) IN (SELECT unnest(%(shards)s::integer[]), unnest(%(numbers)s::integer[]))
ORDER BY shard, number, argument LIMIT %(limit)s;
