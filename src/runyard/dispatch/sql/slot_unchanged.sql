-- Fail unless a slot has this generation, in this era of the database: then nothing of the transaction is committed.
SELECT CASE WHEN count(*) = 1 THEN 1 ELSE ('slots with that generation: ' || count(*))::integer END AS unchanged
FROM slots
WHERE pod_uid = %(pod_uid)s AND generation = %(generation)s AND pg_postmaster_start_time()::text = %(era)s;
