-- Recovery and records: the session on the slot, samples of machines, and the indexes that signals, trails and
-- pruning read by.
ALTER TABLE slots ADD COLUMN claimed_at timestamptz; -- when its Pod was given to somebody; none while it is idle
ALTER TABLE slots ADD COLUMN ended_at timestamptz; -- the earliest moment at which anybody says that it ended
CREATE INDEX slots_sessions_open ON slots (pool, claimed_at) WHERE claimed_at IS NOT NULL AND ended_at IS NULL;
CREATE INDEX slots_sessions_ended ON slots (pool, ended_at) WHERE claimed_at IS NOT NULL;
CREATE INDEX slots_pod_name ON slots (pod_name, opened_at);
CREATE INDEX slots_closed ON slots (closed_at, pod_uid) WHERE state = 'closed';
CREATE INDEX jobs_queued ON jobs (tenant, repository, labels, enqueued_at) WHERE state = 'queued';
CREATE INDEX jobs_done ON jobs (completed_at, job_id) WHERE state = 'done';
CREATE INDEX transitions_at ON transitions (at, id);
CREATE INDEX transitions_job ON transitions (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX transitions_pod ON transitions (pod_uid, id) WHERE pod_uid IS NOT NULL;
CREATE INDEX deliveries_received ON deliveries (received_at, guid);
CREATE INDEX ghost_sightings_seen ON ghost_sightings (first_seen);

-- What a machine said of itself while it executed a job, one row a second at most. It outlives the job's own row.
CREATE TABLE samples (
    job_id bigint NOT NULL,
    at timestamptz NOT NULL,
    cpu_usage_percent real NOT NULL,
    cpu_iowait_percent real NOT NULL,
    memory_used_bytes bigint NOT NULL,
    memory_total_bytes bigint NOT NULL,
    network_bytes_in bigint NOT NULL,
    network_bytes_out bigint NOT NULL,
    disk_used_bytes bigint NOT NULL,
    disk_total_bytes bigint NOT NULL,
    PRIMARY KEY (job_id, at)
);
CREATE INDEX samples_at ON samples (at, job_id);
