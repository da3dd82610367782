-- GitHub refused. Only a failed try makes it twice as long as the last time, within bounds: mints that were under way
-- together fail together, and that is one failure.
INSERT INTO exclusions (kind, name, until, since, failures, why)
VALUES (%(kind)s, %(name)s, runyard_now() + make_interval(secs => %(first)s), runyard_now(), 1, %(why)s)
ON CONFLICT (kind, name) DO UPDATE SET (until, failures, why) = (
    SELECT greatest(exclusions.until, runyard_now() + make_interval(secs => CASE WHEN tried.failed
               THEN greatest(%(first)s, least(%(longest)s, %(first)s * power(2, least(exclusions.failures, 20))))
               ELSE %(first)s END)),
           exclusions.failures + tried.failed::integer, excluded.why
    -- A try of something else counts if this had run out as well: it was tried with it.
    FROM (SELECT %(trial)s = exclusions.kind || ':' || exclusions.name
              OR (%(trial)s <> '' AND exclusions.until <= runyard_now()) AS failed) tried
);
