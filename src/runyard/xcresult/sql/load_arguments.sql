-- Inserts a batch of rows that the child process read from a bundle.
INSERT INTO test_arguments (run_id, shard, number, argument, name, status, duration_ms)
SELECT %(run_id)s::uuid, %(shard)s, number, argument, name, status, duration_ms
FROM json_to_recordset(%(rows)s::json) AS r (
    number integer, argument integer, name text, status text, duration_ms bigint
)
