-- The start time of the database server: it changes with a failover, which may have lost the last commits.
SELECT pg_postmaster_start_time()::text AS era;
