-- Inserts a batch of rows that the child process read from a bundle.
INSERT INTO coverage_targets (run_id, shard, target, name, covered_lines, executable_lines)
SELECT %(run_id)s::uuid, %(shard)s, target, name, covered_lines, executable_lines
FROM json_to_recordset(%(rows)s::json) AS r (
    target integer, name text, covered_lines bigint, executable_lines bigint
)
