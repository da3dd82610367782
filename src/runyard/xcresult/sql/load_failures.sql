-- Inserts a batch of rows that the child process read from a bundle.
INSERT INTO test_failures (
    run_id, shard, number, argument, repetition, failure, message, path, line_number, issue_type
)
SELECT %(run_id)s::uuid, %(shard)s, number, argument, repetition, failure, message, path, line_number, issue_type
FROM json_to_recordset(%(rows)s::json) AS r (
    number integer, argument integer, repetition integer, failure integer, message text, path text,
    line_number integer, issue_type text
)
