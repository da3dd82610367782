-- Runs, newest first, by their first shard. The order is that of the index `test_runs_project`.
SELECT run.run_id::text AS run_id, (extract(epoch FROM run.ran_at) * 1000000)::bigint AS micros
FROM test_runs AS run
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN bool_or(state = 'processing') THEN 'processing'
            WHEN bool_or(state = 'queued') THEN 'queued'
            WHEN bool_or(state = 'awaiting_upload') THEN 'awaiting_upload'
            WHEN bool_or(state = 'failed_processing') THEN 'failed_processing'
            ELSE 'processed'
        END AS state,
        CASE
            WHEN bool_or(status = 'failure') THEN 'failure'
            WHEN bool_or(status = 'success') THEN 'success'
            WHEN bool_or(status = 'skipped') THEN 'skipped'
            ELSE ''
        END AS status,
        bool_or(is_flaky) AS is_flaky
    FROM test_runs AS shard WHERE shard.run_id = run.run_id
) AS whole
WHERE NOT EXISTS (SELECT FROM test_runs AS other WHERE other.run_id = run.run_id AND other.shard < run.shard)
    AND (%(account)s = '' OR run.account = %(account)s)
    AND (%(project)s = '' OR run.project = %(project)s)
    AND (%(branch)s = '' OR run.git_branch = %(branch)s)
    AND (%(commit)s = '' OR run.git_commit_sha = %(commit)s)
    AND (%(scheme)s = '' OR run.scheme = %(scheme)s)
    AND (%(ci_run)s = '' OR run.ci_run_id = %(ci_run)s)
    AND (%(state)s = '' OR whole.state = %(state)s)
    AND (%(status)s = '' OR whole.status = %(status)s)
    AND (NOT %(flaky)s OR whole.is_flaky)
    AND (
        %(micros)s::bigint IS NULL
        OR run.ran_at < 'epoch'::timestamptz + %(micros)s * interval '1 microsecond'
        OR (run.ran_at = 'epoch'::timestamptz + %(micros)s * interval '1 microsecond' AND run.run_id > %(after)s::uuid)
    )
ORDER BY run.ran_at DESC, run.run_id LIMIT %(limit)s;
