-- Record a ghost registration; returns for how long it has been seen.
INSERT INTO ghost_sightings (scope, runner_id, first_seen) VALUES (%(scope)s, %(runner_id)s, runyard_now())
ON CONFLICT (scope, runner_id) DO UPDATE SET first_seen = ghost_sightings.first_seen
RETURNING extract(epoch FROM runyard_now() - first_seen)::double precision AS age;
