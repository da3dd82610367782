-- Delete old sightings, which are in scopes that are not listed any more.
DELETE FROM ghost_sightings WHERE (scope, runner_id) IN (
    SELECT g.scope, g.runner_id FROM ghost_sightings g
    WHERE g.first_seen < runyard_now() - make_interval(secs => %(older)s)
    ORDER BY g.first_seen, g.scope, g.runner_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
