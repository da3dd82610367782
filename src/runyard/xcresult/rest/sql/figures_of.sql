-- Recent figures of some tests.
WITH ran AS (
    SELECT case_id, run_id, shard, status, is_flaky, duration_ms FROM test_case_runs
    WHERE case_id = ANY(%(cases)s::uuid[]) AND ran_at >= runyard_now() - make_interval(days => %(days)s)
), mixed AS (
    SELECT case_id, git_commit_sha
    FROM ran JOIN test_runs AS run USING (run_id, shard)
    WHERE run.git_commit_sha <> ''
    GROUP BY case_id, git_commit_sha
    HAVING bool_or(ran.status = 'success') AND bool_or(ran.status = 'failure')
        AND count(DISTINCT (run_id, shard)) FILTER (WHERE ran.status <> 'skipped') > 1
)
SELECT case_id::text AS "case", count(*) AS runs,
    count(*) FILTER (WHERE status = 'success') AS succeeded,
    count(*) FILTER (WHERE status = 'failure') AS failed,
    count(*) FILTER (WHERE status = 'skipped') AS skipped,
    count(*) FILTER (WHERE is_flaky) AS flaky,
    (SELECT count(*) FROM mixed WHERE mixed.case_id = ran.case_id) AS mixed_commits,
    avg(duration_ms) FILTER (WHERE status <> 'skipped')::double precision AS average_ms,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY duration_ms) FILTER (WHERE status <> 'skipped') AS median_ms,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY duration_ms) FILTER (WHERE status <> 'skipped') AS p95_ms
FROM ran GROUP BY case_id ORDER BY case_id;
