-- How many claims each pool has, by the states that existing dashboards use.
SELECT fleet_name, lifecycle_state, count(*)::integer AS claims FROM runner_claims
GROUP BY fleet_name, lifecycle_state ORDER BY fleet_name, lifecycle_state;
