-- Shards of one run are created one after the other, so that all of them belong to one project.
SELECT pg_advisory_xact_lock(hashtextextended(%(run_id)s, 7305));
