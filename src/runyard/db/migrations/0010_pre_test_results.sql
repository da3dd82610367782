-- Test results: one row a run and shard is the truth about its processing, and everything that its bundle said hangs
-- on it. The queue only delivers: whoever processes a run owns its row for a while, and writes by (attempt, lease_owner).
-- A run's results are replaced as a whole, in the transaction that says so on its row.
CREATE TABLE test_runs (
    run_id uuid NOT NULL,
    shard integer NOT NULL DEFAULT 0 CHECK (shard >= 0),
    account text NOT NULL,
    project text NOT NULL,

    -- Processing.
    state text NOT NULL DEFAULT 'awaiting_upload'
        CHECK (state IN ('awaiting_upload', 'queued', 'processing', 'processed', 'failed_processing')),
    attempt integer NOT NULL DEFAULT 0 CHECK (attempt >= 0), -- grows with every claim, and never shrinks
    claims integer NOT NULL DEFAULT 0 CHECK (claims >= 0), -- since it was last put to work; bounded, too
    spent integer NOT NULL DEFAULT 0 CHECK (spent >= 0), -- how many of them count against the limit of attempts
    lease_owner text NOT NULL DEFAULT '', -- unique to the claim; empty: nobody's
    lease_until timestamptz,
    due_at timestamptz, -- not before then, while it is queued
    queue_job bigint, -- what the queue calls the job that delivers it
    reason_code text NOT NULL DEFAULT '', -- why the last attempt failed: bundle_invalid, timeout, …
    reason text NOT NULL DEFAULT '', -- the same for people, one line
    storage_key text NOT NULL,
    archive_bytes bigint, -- as uploaded
    created_at timestamptz NOT NULL DEFAULT runyard_now(),
    uploaded_at timestamptz,
    queued_at timestamptz,
    started_at timestamptz, -- of the last attempt
    finished_at timestamptz, -- processed, or given up

    -- What the client said of it.
    is_ci boolean NOT NULL DEFAULT false,
    git_branch text NOT NULL DEFAULT '',
    git_commit_sha text NOT NULL DEFAULT '',
    git_ref text NOT NULL DEFAULT '',
    macos_version text NOT NULL DEFAULT '',
    xcode_version text NOT NULL DEFAULT '',
    model_identifier text NOT NULL DEFAULT '',
    scheme text NOT NULL DEFAULT '', -- the test plan's name where the bundle has one
    ci_run_id text NOT NULL DEFAULT '',
    ci_project_handle text NOT NULL DEFAULT '',
    ci_host text NOT NULL DEFAULT '',
    ci_provider text NOT NULL DEFAULT '',
    build_run_id text NOT NULL DEFAULT '',
    shard_plan_id text NOT NULL DEFAULT '',
    ran_at timestamptz NOT NULL DEFAULT runyard_now(),
    vcs_comment_params jsonb NOT NULL DEFAULT '{}',

    -- What its bundle says as a whole; empty until it is processed.
    status text NOT NULL DEFAULT '' CHECK (status IN ('', 'success', 'failure', 'skipped')),
    duration_ms bigint NOT NULL DEFAULT 0,
    test_plan text NOT NULL DEFAULT '',
    format text NOT NULL DEFAULT '',
    source text NOT NULL DEFAULT '',
    is_flaky boolean NOT NULL DEFAULT false,
    cases integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    skipped integer NOT NULL DEFAULT 0,
    flaky integer NOT NULL DEFAULT 0,
    destinations jsonb NOT NULL DEFAULT '[]', -- [{name, platform, os_version}]
    errors jsonb NOT NULL DEFAULT '[]', -- [{target, message}]
    warnings jsonb NOT NULL DEFAULT '[]', -- [{object_id, message}]
    build_issues jsonb NOT NULL DEFAULT '[]', -- [{kind, message, issue_type, target, path, line_number}]
    attachments_dropped integer NOT NULL DEFAULT 0, -- could not be uploaded; the rest of the result is whole
    covered_lines bigint,
    executable_lines bigint,

    PRIMARY KEY (run_id, shard),
    CONSTRAINT test_runs_leased CHECK ((state = 'processing') = (lease_until IS NOT NULL) AND (state = 'processing') = (lease_owner <> '')),
    CONSTRAINT test_runs_due CHECK ((state = 'queued') = (due_at IS NOT NULL))
);
CREATE INDEX test_runs_project ON test_runs (account, project, ran_at DESC, run_id, shard);
CREATE INDEX test_runs_created ON test_runs (created_at, run_id, shard);
CREATE INDEX test_runs_queued ON test_runs (due_at, run_id, shard) WHERE state = 'queued';
CREATE INDEX test_runs_leases ON test_runs (lease_until, run_id, shard) WHERE state = 'processing';

-- What became of each attempt; kept for as long as the run.
CREATE TABLE test_attempts (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    attempt integer NOT NULL,
    owner text NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at timestamptz,
    outcome text NOT NULL DEFAULT 'running'
        CHECK (outcome IN ('running', 'processed', 'retry', 'released', 'lost', 'failed')),
    reason_code text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, shard, attempt),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);

-- A test of a project, the same in every run: its id is a digest of (account, project, module, suites, identifier).
CREATE TABLE test_cases (
    case_id uuid PRIMARY KEY,
    account text NOT NULL,
    project text NOT NULL,
    module text NOT NULL,
    suite text NOT NULL, -- the suites around it joined by /, outermost first; empty: a top-level function
    name text NOT NULL, -- its function's name, or the identifier's last part
    identifier text NOT NULL,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL
);
CREATE INDEX test_cases_project ON test_cases (account, project, case_id);

-- Modules, suites and cases of a run are numbered in the bundle's order.
CREATE TABLE test_modules (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    module integer NOT NULL,
    name text NOT NULL,
    status text NOT NULL CHECK (status IN ('success', 'failure')),
    duration_ms bigint NOT NULL,
    suites integer NOT NULL,
    cases integer NOT NULL,
    failed integer NOT NULL,
    skipped integer NOT NULL,
    flaky integer NOT NULL,
    average_case_ms bigint NOT NULL,
    PRIMARY KEY (run_id, shard, module),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);

CREATE TABLE test_suites (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    suite integer NOT NULL,
    module integer NOT NULL,
    name text NOT NULL,
    status text NOT NULL CHECK (status IN ('success', 'failure', 'skipped')),
    duration_ms bigint NOT NULL,
    cases integer NOT NULL,
    failed integer NOT NULL,
    skipped integer NOT NULL,
    flaky integer NOT NULL,
    average_case_ms bigint NOT NULL,
    PRIMARY KEY (run_id, shard, suite),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);

-- What became of a case in a run. One that ran in two test plans has two rows.
CREATE TABLE test_case_runs (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    number integer NOT NULL,
    case_id uuid NOT NULL REFERENCES test_cases,
    module integer NOT NULL,
    suite integer, -- none: a top-level function
    name text NOT NULL, -- its display name
    status text NOT NULL CHECK (status IN ('success', 'failure', 'skipped')),
    duration_ms bigint, -- none: the bundle does not say
    is_flaky boolean NOT NULL DEFAULT false,
    is_quarantined boolean NOT NULL DEFAULT false,
    ran_at timestamptz NOT NULL,
    PRIMARY KEY (run_id, shard, number),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);
CREATE INDEX test_case_runs_history ON test_case_runs (case_id, ran_at DESC, run_id, shard, number);
CREATE INDEX test_case_runs_failed ON test_case_runs (run_id, shard, number) WHERE status = 'failure';

-- Below a case: `argument` is 0 where there is none, else its number from 1; `repetition` likewise.
CREATE TABLE test_arguments (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    number integer NOT NULL,
    argument integer NOT NULL CHECK (argument > 0),
    name text NOT NULL,
    status text NOT NULL CHECK (status IN ('success', 'failure', 'skipped')),
    duration_ms bigint NOT NULL,
    PRIMARY KEY (run_id, shard, number, argument),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);

CREATE TABLE test_repetitions (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    number integer NOT NULL,
    argument integer NOT NULL DEFAULT 0,
    repetition integer NOT NULL, -- its place among its case's, or its argument's, from 1
    repetition_number integer NOT NULL, -- as the bundle counts
    name text NOT NULL,
    status text NOT NULL CHECK (status IN ('success', 'failure', 'skipped')),
    duration_ms bigint NOT NULL,
    PRIMARY KEY (run_id, shard, number, argument, repetition),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);

CREATE TABLE test_failures (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    number integer NOT NULL,
    argument integer NOT NULL DEFAULT 0,
    repetition integer NOT NULL DEFAULT 0,
    failure integer NOT NULL, -- its place, from 1
    message text NOT NULL,
    path text NOT NULL DEFAULT '',
    line_number integer NOT NULL DEFAULT 0, -- from 1; 0: unknown
    issue_type text NOT NULL DEFAULT '', -- error_thrown, assertion_failure, issue_recorded
    PRIMARY KEY (run_id, shard, number, argument, repetition, failure),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);

-- The bytes of attachments, once a project: its id is a digest of (account, project, content id). The row comes before
-- the upload, so that no object is ever without one. Whoever is about to refer to it touches it first; a row that
-- nobody refers to, untouched for a day, may go, and its object after it.
CREATE TABLE test_payloads (
    payload_id uuid PRIMARY KEY,
    account text NOT NULL,
    project text NOT NULL,
    content_id text NOT NULL,
    storage_key text NOT NULL,
    size bigint NOT NULL,
    touched_at timestamptz NOT NULL,
    uploaded_at timestamptz -- none: not known to be there
);
CREATE INDEX test_payloads_touched ON test_payloads (touched_at, payload_id);

CREATE TABLE test_attachments (
    attachment_id uuid PRIMARY KEY, -- a digest of its place, so that processing again gives the same
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    number integer NOT NULL,
    place integer NOT NULL, -- among its case's, from 1
    payload_id uuid NOT NULL REFERENCES test_payloads,
    file_name text NOT NULL,
    uniform_type text NOT NULL DEFAULT '',
    size bigint NOT NULL,
    repetition_number integer,
    argument_name text,
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE,
    UNIQUE (run_id, shard, number, place)
);
CREATE INDEX test_attachments_payload ON test_attachments (payload_id);

CREATE TABLE test_crashes (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    number integer NOT NULL,
    crash integer NOT NULL, -- its place, from 1
    attachment_id uuid, -- the report itself, unless it could not be uploaded
    file_name text NOT NULL,
    exception_type text NOT NULL DEFAULT '',
    exception_subtype text NOT NULL DEFAULT '',
    signal text NOT NULL DEFAULT '',
    triggered_thread_frames text NOT NULL DEFAULT '', -- a line a frame
    PRIMARY KEY (run_id, shard, number, crash),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);

CREATE TABLE coverage_targets (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    target integer NOT NULL,
    name text NOT NULL,
    covered_lines bigint NOT NULL,
    executable_lines bigint NOT NULL,
    PRIMARY KEY (run_id, shard, target),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);

CREATE TABLE coverage_files (
    run_id uuid NOT NULL,
    shard integer NOT NULL,
    file integer NOT NULL,
    target integer NOT NULL,
    path text NOT NULL,
    covered_lines bigint NOT NULL,
    executable_lines bigint NOT NULL,
    lines bytea NOT NULL DEFAULT '', -- line numbers and counts, packed (runyard.xcresult.coverage_encoding)
    PRIMARY KEY (run_id, shard, file),
    FOREIGN KEY (run_id, shard) REFERENCES test_runs ON DELETE CASCADE
);
