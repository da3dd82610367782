-- How many claims each pool has, and on how many Pods, which are occupied also after their jobs.
SELECT fleet_name AS pool, count(*)::integer AS claimed, count(DISTINCT pod_name)::integer AS occupied
FROM runner_claims GROUP BY fleet_name ORDER BY fleet_name;
