-- Jobs that await an approval, what people know a job by, and its priority; fairness between the repositories of a
-- tenant; whom the matcher passes over for a while because GitHub refuses their runners.
ALTER TABLE jobs DROP CONSTRAINT jobs_state_check;
ALTER TABLE jobs ADD CONSTRAINT jobs_state_check CHECK (state IN ('waiting', 'queued', 'bound', 'running', 'done'));
ALTER TABLE jobs
    ADD COLUMN run_id bigint NOT NULL DEFAULT 0,
    ADD COLUMN run_attempt integer NOT NULL DEFAULT 1,
    ADD COLUMN name text NOT NULL DEFAULT '',
    ADD COLUMN workflow text NOT NULL DEFAULT '',
    ADD COLUMN branch text NOT NULL DEFAULT '',
    ADD COLUMN head_sha text NOT NULL DEFAULT '',
    ADD COLUMN priority integer NOT NULL DEFAULT 0, -- larger goes first, among the jobs of one tenant
    ADD COLUMN claimed_at timestamptz; -- when it was last meant for a runner
CREATE INDEX jobs_next ON jobs (tenant, repository, labels, priority DESC, enqueued_at, job_id)
    WHERE state = 'queued' AND verified;
CREATE INDEX jobs_due ON jobs (look_at, job_id) WHERE state IN ('waiting', 'queued', 'running');

ALTER TABLE tenants
    ADD COLUMN paused boolean NOT NULL DEFAULT false, -- its jobs are kept and offered to nobody
    ADD COLUMN mint_at text NOT NULL DEFAULT 'org' CHECK (mint_at IN ('org', 'repo'));

CREATE TABLE repositories (
    tenant text NOT NULL REFERENCES tenants ON DELETE CASCADE,
    repository text NOT NULL,
    weight double precision NOT NULL DEFAULT 1 CHECK (weight > 0),
    priority integer NOT NULL DEFAULT 0, -- what its jobs start with
    PRIMARY KEY (tenant, repository)
);
INSERT INTO repositories (tenant, repository) SELECT DISTINCT tenant, repository FROM jobs;

-- Virtual time is kept for each platform: who waits for a Mac is not moved on by what others get on Linux.
CREATE TABLE virtual_times (
    tenant text NOT NULL REFERENCES tenants ON DELETE CASCADE,
    repository text NOT NULL, -- nothing: the tenant's own, among the tenants
    platform text NOT NULL,
    vtime double precision NOT NULL, -- grows by cost/weight with every runner
    vstart double precision NOT NULL, -- what vtime was before the last one
    PRIMARY KEY (tenant, repository, platform)
);
CREATE INDEX virtual_times_tenants ON virtual_times (platform, vstart) WHERE repository = '';
CREATE INDEX virtual_times_repositories ON virtual_times (tenant, platform, vstart) WHERE repository <> '';
INSERT INTO virtual_times (tenant, repository, platform, vtime, vstart)
SELECT tenant, '', platform, vtime, vstart FROM tenants JOIN tenant_limits USING (tenant);

CREATE TABLE exclusions (
    kind text NOT NULL CHECK (kind IN ('repository', 'account', 'github')),
    name text NOT NULL, -- of the repository or the account; nothing for GitHub as a whole
    until timestamptz NOT NULL,
    since timestamptz NOT NULL,
    failures integer NOT NULL, -- one after the other; each doubles the time
    why text NOT NULL,
    PRIMARY KEY (kind, name)
);
