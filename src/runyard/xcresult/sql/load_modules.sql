-- Inserts a batch of rows that the child process read from a bundle.
INSERT INTO test_modules (
    run_id, shard, module, name, status, duration_ms, suites, cases, failed, skipped, flaky, average_case_ms
)
SELECT %(run_id)s::uuid, %(shard)s, module, name, status, duration_ms, suites, cases, failed, skipped, flaky, average_case_ms
FROM json_to_recordset(%(rows)s::json) AS r (
    module integer, name text, status text, duration_ms bigint, suites integer, cases integer, failed integer,
    skipped integer, flaky integer, average_case_ms bigint
)
