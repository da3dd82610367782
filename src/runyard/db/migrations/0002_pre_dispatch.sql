-- Dispatch: tenants, jobs, slots, the log of transitions, deliveries, and when the service was last away.
-- A claim is a slot in a claim state; the view runner_claims shows them under the names the fleet's tools know.
CREATE TABLE tenants (
    tenant text PRIMARY KEY,
    installation_id bigint NOT NULL,
    kind text NOT NULL DEFAULT 'Organization',
    weight double precision NOT NULL DEFAULT 1 CHECK (weight > 0),
    vtime double precision NOT NULL DEFAULT 0, -- grows by cost/weight with every runner
    vstart double precision NOT NULL DEFAULT 0 -- what vtime was before the last one
);

CREATE TABLE tenant_limits (
    tenant text NOT NULL REFERENCES tenants ON DELETE CASCADE,
    platform text NOT NULL,
    vcpus integer NOT NULL CHECK (vcpus >= 0),
    memory_gb integer NOT NULL CHECK (memory_gb >= 0),
    PRIMARY KEY (tenant, platform)
);

CREATE TABLE jobs (
    job_id bigint PRIMARY KEY,
    tenant text NOT NULL REFERENCES tenants,
    repository text NOT NULL,
    labels text[] NOT NULL,
    state text NOT NULL CHECK (state IN ('queued', 'bound', 'running', 'done')),
    verified boolean NOT NULL,
    runner_name text NOT NULL DEFAULT '',
    conclusion text NOT NULL DEFAULT '',
    enqueued_at timestamptz NOT NULL,
    started_at timestamptz,
    completed_at timestamptz,
    look_at timestamptz NOT NULL
);
CREATE INDEX jobs_offerable ON jobs (tenant, labels, enqueued_at, job_id) WHERE state = 'queued' AND verified;
CREATE INDEX jobs_look ON jobs (look_at, job_id) WHERE state IN ('queued', 'running');

CREATE TABLE slots (
    pod_uid text PRIMARY KEY,
    pod_name text NOT NULL,
    pool text NOT NULL,
    generation bigint NOT NULL,
    state text NOT NULL CHECK (state IN ('idle', 'offered', 'armed', 'executing', 'draining', 'closed')),
    tenant text NOT NULL DEFAULT '',
    scope text NOT NULL DEFAULT '',
    installation_id bigint NOT NULL DEFAULT 0,
    vcpus integer NOT NULL DEFAULT 0,
    memory_gb integer NOT NULL DEFAULT 0,
    platform text NOT NULL DEFAULT '',
    intended_job bigint REFERENCES jobs,
    executing_job bigint,
    runner_name text NOT NULL DEFAULT '',
    runner_id bigint,
    stamped boolean NOT NULL DEFAULT false,
    jit bytea,
    fence text NOT NULL DEFAULT 'none' CHECK (fence IN ('none', 'due', 'done')),
    close_reason text NOT NULL DEFAULT '',
    deadline timestamptz NOT NULL,
    last_beat timestamptz NOT NULL,
    opened_at timestamptz NOT NULL,
    closed_at timestamptz
);
CREATE UNIQUE INDEX slots_one_per_pod_name ON slots (pod_name) WHERE state <> 'closed';
CREATE UNIQUE INDEX slots_one_per_job ON slots (intended_job) WHERE intended_job IS NOT NULL;
CREATE INDEX slots_runner ON slots (tenant, runner_name, opened_at) WHERE runner_name <> '';
CREATE INDEX slots_sweep ON slots (deadline, pod_uid) WHERE state <> 'closed' OR fence = 'due';
CREATE INDEX slots_scopes ON slots (scope, installation_id) WHERE scope <> '';
CREATE INDEX slots_claims ON slots (tenant, platform)
    WHERE state IN ('offered', 'armed', 'executing', 'draining');

CREATE TABLE transitions (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    subject text NOT NULL CHECK (subject IN ('slot', 'job')),
    pod_uid text,
    job_id bigint,
    source text NOT NULL,
    target text NOT NULL,
    why text NOT NULL,
    actor text NOT NULL
);

CREATE TABLE deliveries (
    guid text PRIMARY KEY,
    received_at timestamptz NOT NULL,
    action text NOT NULL,
    outcome text NOT NULL
);

CREATE TABLE cursors (
    name text PRIMARY KEY,
    value text NOT NULL
);

CREATE TABLE ghost_sightings (
    scope text NOT NULL,
    runner_id bigint NOT NULL,
    first_seen timestamptz NOT NULL,
    PRIMARY KEY (scope, runner_id)
);

CREATE TABLE service (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    served_since timestamptz NOT NULL,
    last_tick timestamptz NOT NULL
);

CREATE VIEW runner_claims AS
SELECT
    intended_job AS workflow_job_id,
    executing_job AS executed_workflow_job_id,
    tenant,
    pool AS fleet_name,
    pod_name,
    pod_uid,
    runner_name,
    platform,
    vcpus,
    memory_gb,
    CASE state WHEN 'offered' THEN 'claimed' ELSE 'running' END AS lifecycle_state
FROM slots
WHERE state IN ('offered', 'armed', 'executing', 'draining');
