-- Objects that no row refers to any more, and that are still to be removed from the store. A key gets here in the
-- transaction that takes the last row away which knew it, so that a crash leaves none behind. No key is ever used again.
CREATE TABLE blob_graves (
    storage_key text PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('upload', 'payload')),
    buried_at timestamptz NOT NULL DEFAULT runyard_now(),
    tries integer NOT NULL DEFAULT 0, -- how often the store did not do it
    next_try timestamptz NOT NULL DEFAULT runyard_now()
);
CREATE INDEX blob_graves_next ON blob_graves (next_try, storage_key);

-- The upload itself goes before the run does; a run without it cannot be processed again.
ALTER TABLE test_runs ADD COLUMN upload_gone boolean NOT NULL DEFAULT false;
CREATE INDEX test_runs_uploads ON test_runs (finished_at, run_id, shard) WHERE finished_at IS NOT NULL AND NOT upload_gone;
CREATE INDEX test_runs_awaited ON test_runs (created_at, run_id, shard) WHERE state = 'awaiting_upload';
CREATE INDEX test_runs_commit ON test_runs (account, project, git_commit_sha);
CREATE INDEX test_case_runs_flaky ON test_case_runs (run_id, shard, number) WHERE is_flaky;
CREATE INDEX test_cases_seen ON test_cases (last_seen, case_id);
