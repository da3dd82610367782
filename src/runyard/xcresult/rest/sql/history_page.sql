-- Results of a test, newest first. The order is that of the index `test_case_runs_history`.
SELECT ran.run_id::text AS run, ran.shard AS shard_index, ran.number, ran.status, ran.duration_ms, ran.is_flaky,
    ran.is_quarantined, extract(epoch FROM ran.ran_at)::double precision AS ran_at,
    (extract(epoch FROM ran.ran_at) * 1000000)::bigint AS micros, run.git_branch, run.git_commit_sha
FROM test_case_runs AS ran JOIN test_runs AS run USING (run_id, shard)
WHERE ran.case_id = %(case)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
    AND (%(branch)s = '' OR run.git_branch = %(branch)s)
    AND (%(status)s = '' OR ran.status = %(status)s)
    AND (
        %(micros)s::bigint IS NULL
        OR ran.ran_at < 'epoch'::timestamptz + %(micros)s * interval '1 microsecond'
        OR (
            ran.ran_at = 'epoch'::timestamptz + %(micros)s * interval '1 microsecond'
            AND (ran.run_id, ran.shard, ran.number) > (%(after)s::uuid, %(shard)s, %(number)s)
        )
    )
ORDER BY ran.ran_at DESC, ran.run_id, ran.shard, ran.number LIMIT %(limit)s;
