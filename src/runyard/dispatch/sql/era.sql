-- Which incarnation of the database this is: another one after a failover, which may have lost the last commits.
SELECT pg_postmaster_start_time()::text AS era;
