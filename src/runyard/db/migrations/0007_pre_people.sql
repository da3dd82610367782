-- What people change by hand, and a way to the jobs that are not over.
CREATE TABLE tenant_changes (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    tenant text NOT NULL,
    field text NOT NULL, -- weight, paused, limit/macos, repository/acme/app
    source text NOT NULL,
    target text NOT NULL,
    why text NOT NULL,
    actor text NOT NULL
);
CREATE INDEX tenant_changes_of ON tenant_changes (tenant, id);
CREATE INDEX jobs_alive ON jobs (job_id) WHERE state <> 'done';
