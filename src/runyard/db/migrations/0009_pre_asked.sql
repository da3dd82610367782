-- What people asked GitHub about a job is in the trail too, and the trail is pruned.
ALTER TABLE tenant_changes ADD COLUMN job_id bigint; -- the job that was asked about; none: the tenant was changed
CREATE INDEX tenant_changes_job ON tenant_changes (job_id, id) WHERE job_id IS NOT NULL;
CREATE INDEX tenant_changes_at ON tenant_changes (at, id);
