-- All shards of some runs.
SELECT run_id::text AS run_id, shard AS shard_index, account, project, state, status, attempt, reason_code,
    reason_detail, duration_ms, cases, failed, skipped, flaky, archive_bytes, upload_gone, format, source, attachments_dropped,
    scheme, NULLIF(test_plan, '') AS test_plan, is_ci, git_branch, git_commit_sha, git_ref, macos_version, xcode_version, model_identifier,
    ci_run_id, ci_project_handle, ci_host, ci_provider, build_run_id, shard_plan_id,
    extract(epoch FROM ran_at)::double precision AS ran_at,
    extract(epoch FROM created_at)::double precision AS created_at,
    extract(epoch FROM uploaded_at)::double precision AS uploaded_at,
    extract(epoch FROM finished_at)::double precision AS finished_at
FROM test_runs
WHERE run_id = ANY(%(runs)s::uuid[])
    AND %(account)s IN ('', account) AND %(project)s IN ('', project)
ORDER BY run_id, shard;
