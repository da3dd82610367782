-- The lines of one file, of every shard that has it.
SELECT file.lines
FROM coverage_files AS file
JOIN coverage_targets AS target USING (run_id, shard, target)
JOIN test_runs AS run USING (run_id, shard)
WHERE file.run_id = %(run_id)s::uuid AND target.name = %(target)s AND file.path = %(path)s
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
ORDER BY file.shard, file.file LIMIT %(limit)s;
