-- What only the release before needed: its ways to the oldest jobs and to the next look.
DROP INDEX IF EXISTS jobs_offerable;
DROP INDEX IF EXISTS jobs_look;
