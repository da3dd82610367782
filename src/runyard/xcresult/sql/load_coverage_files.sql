-- Inserts a batch of rows that the child process read from a bundle.
INSERT INTO coverage_files (run_id, shard, file, target, path, covered_lines, executable_lines, lines)
SELECT %(run_id)s::uuid, %(shard)s, file, target, path, covered_lines, executable_lines, decode(lines, 'base64')
FROM json_to_recordset(%(rows)s::json) AS r (
    file integer, target integer, path text, covered_lines bigint, executable_lines bigint, lines text
)
