-- What only the release before needed: its ways to the oldest jobs and to the next look, and one virtual time for all.
DROP INDEX IF EXISTS jobs_offerable;
DROP INDEX IF EXISTS jobs_look;
ALTER TABLE tenants DROP COLUMN IF EXISTS vtime, DROP COLUMN IF EXISTS vstart;
