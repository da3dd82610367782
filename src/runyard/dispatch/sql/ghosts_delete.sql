-- Delete the sightings of registrations that are not ghosts any more.
DELETE FROM ghost_sightings WHERE scope = %(scope)s AND NOT (runner_id = ANY(%(runner_ids)s::bigint[]));
