-- A batch of what a bundle says, as the child wrote it.
INSERT INTO coverage_targets (run_id, shard, target, name, covered_lines, executable_lines)
SELECT %(run_id)s::uuid, %(shard)s, target, name, covered_lines, executable_lines
FROM json_to_recordset(%(rows)s::json) AS r (
    target integer, name text, covered_lines bigint, executable_lines bigint
)
