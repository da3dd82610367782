-- Inserts a batch of rows that the child process read from a bundle.
INSERT INTO test_case_runs (
    run_id, shard, number, case_id, module, suite, name, status, duration_ms, is_flaky, is_quarantined, ran_at
)
SELECT %(run_id)s::uuid, %(shard)s, number, case_id, module, suite, name, status, duration_ms, is_flaky, is_quarantined,
    %(ran_at)s
FROM json_to_recordset(%(rows)s::json) AS r (
    number integer, case_id uuid, module integer, suite integer, name text, status text, duration_ms bigint,
    is_flaky boolean, is_quarantined boolean
)
