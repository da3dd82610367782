-- Inserts a batch of rows that the child process read from a bundle.
INSERT INTO test_suites (
    run_id, shard, suite, module, name, status, duration_ms, cases, failed, skipped, flaky, average_case_ms
)
SELECT %(run_id)s::uuid, %(shard)s, suite, module, name, status, duration_ms, cases, failed, skipped, flaky, average_case_ms
FROM json_to_recordset(%(rows)s::json) AS r (
    suite integer, module integer, name text, status text, duration_ms bigint, cases integer, failed integer,
    skipped integer, flaky integer, average_case_ms bigint
)
