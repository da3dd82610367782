-- How many claims each pool has, by the names that the fleet's dashboards know.
SELECT fleet_name, lifecycle_state, count(*)::integer AS claims FROM runner_claims
GROUP BY fleet_name, lifecycle_state ORDER BY fleet_name, lifecycle_state;
