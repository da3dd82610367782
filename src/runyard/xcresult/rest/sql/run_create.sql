-- Inserts an announced run; an existing one stays as it is.
INSERT INTO test_runs (
    run_id, shard, account, project, storage_key, is_ci, git_branch, git_commit_sha, git_ref, macos_version,
    xcode_version, model_identifier, scheme, ci_run_id, ci_project_handle, ci_host, ci_provider, build_run_id,
    shard_plan_id, ran_at, vcs_comment_params
) VALUES (
    %(run_id)s::uuid, %(shard)s, %(account)s, %(project)s, %(storage_key)s, %(is_ci)s, %(git_branch)s,
    %(git_commit_sha)s, %(git_ref)s, %(macos_version)s, %(xcode_version)s, %(model_identifier)s, %(scheme)s,
    %(ci_run_id)s, %(ci_project_handle)s, %(ci_host)s, %(ci_provider)s, %(build_run_id)s, %(shard_plan_id)s,
    COALESCE(%(ran_at)s::timestamptz, runyard_now()), %(vcs_comment_params)s::jsonb
) ON CONFLICT (run_id, shard) DO NOTHING;
