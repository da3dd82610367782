-- Sightings that were not confirmed this time.
DELETE FROM ghost_sightings WHERE scope = %(scope)s AND NOT (runner_id = ANY(%(runner_ids)s::bigint[]));
