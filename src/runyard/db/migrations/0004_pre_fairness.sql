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
    vtime double precision NOT NULL DEFAULT 0,
    vstart double precision NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, repository)
);
CREATE INDEX repositories_floor ON repositories (tenant, vstart);
INSERT INTO repositories (tenant, repository) SELECT DISTINCT tenant, repository FROM jobs;

CREATE TABLE exclusions (
    kind text NOT NULL CHECK (kind IN ('repository', 'account', 'github')),
    name text NOT NULL, -- of the repository or the account; nothing for GitHub as a whole
    until timestamptz NOT NULL,
    since timestamptz NOT NULL,
    failures integer NOT NULL, -- one after the other; each doubles the time
    why text NOT NULL,
    PRIMARY KEY (kind, name)
);
