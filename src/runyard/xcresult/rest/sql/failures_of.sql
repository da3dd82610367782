-- Failures of some cases of a run, the first few of each.
SELECT shard, number, argument, repetition, message, path, line_number, issue_type
FROM (
    SELECT failure.*, row_number() OVER (
        PARTITION BY shard, number ORDER BY argument, repetition, failure
    ) AS place
    FROM test_failures AS failure
    WHERE run_id = %(run_id)s::uuid
        AND (shard, number) IN (SELECT unnest(%(shards)s::integer[]), unnest(%(numbers)s::integer[]))
) AS few
WHERE place <= %(most)s
ORDER BY shard, number, argument, repetition, failure;
