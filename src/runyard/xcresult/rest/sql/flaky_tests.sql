-- Tests with different results for the same code: a failure and then a success in one run, or both on one commit in two
-- uploads (within one upload, failing on one device and succeeding on another is not flaky). Reads only failed and
-- flaky results, by indexes that contain nothing else, and only commits with several uploads.
WITH lately AS (
    SELECT run_id, shard, account, project, git_commit_sha, ran_at FROM test_runs
    WHERE state = 'processed' AND ran_at >= runyard_now() - make_interval(days => %(days)s)
        AND (%(account)s = '' OR account = %(account)s)
        AND (%(project)s = '' OR project = %(project)s)
        AND (%(branch)s = '' OR git_branch = %(branch)s)
), once AS (
    SELECT ran.case_id, lately.ran_at
    FROM lately JOIN test_case_runs AS ran USING (run_id, shard)
    WHERE ran.is_flaky
), failed AS (
    SELECT DISTINCT ran.case_id, lately.account, lately.project, lately.git_commit_sha, lately.run_id, lately.shard
    FROM lately JOIN test_case_runs AS ran USING (run_id, shard)
    WHERE ran.status = 'failure' AND lately.git_commit_sha <> ''
), mixed AS (
    SELECT failed.case_id, max(lately.ran_at) AS ran_at
    FROM failed
    JOIN lately ON (lately.account, lately.project, lately.git_commit_sha)
        = (failed.account, failed.project, failed.git_commit_sha)
        AND (lately.run_id, lately.shard) <> (failed.run_id, failed.shard)
    JOIN test_case_runs AS ran
        ON ran.case_id = failed.case_id AND ran.ran_at = lately.ran_at
        AND ran.run_id = lately.run_id AND ran.shard = lately.shard
    WHERE ran.status = 'success'
    GROUP BY failed.case_id, failed.git_commit_sha
), all_of_them AS (
    SELECT case_id, ran_at FROM once UNION ALL SELECT case_id, ran_at FROM mixed
)
SELECT case_id::text AS "case", extract(epoch FROM max(ran_at))::double precision AS last_flaky_at
FROM all_of_them GROUP BY case_id
ORDER BY count(*) DESC, max(ran_at) DESC, case_id LIMIT %(limit)s;
