-- Files of a run's coverage, each once a target, by name; `lines` of every shard that has it.
SELECT target.name AS target, file.path, array_agg(file.covered_lines ORDER BY file.shard, file.file) AS covered,
    array_agg(file.executable_lines ORDER BY file.shard, file.file) AS executable,
    CASE WHEN count(*) > 1 THEN array_agg(file.lines ORDER BY file.shard, file.file) ELSE '{}' END AS lines
FROM coverage_files AS file
JOIN coverage_targets AS target USING (run_id, shard, target)
JOIN test_runs AS run USING (run_id, shard)
WHERE file.run_id = %(run_id)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
    AND (%(only)s = '' OR target.name = %(only)s)
    AND (target.name, file.path) > (%(target)s, %(path)s)
GROUP BY target.name, file.path
ORDER BY target.name, file.path LIMIT %(limit)s;
