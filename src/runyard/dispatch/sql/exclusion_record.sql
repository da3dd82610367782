-- Record that GitHub refused a runner. Only the failure of a trial doubles the time, within bounds: mints that ran
-- concurrently fail together and count as one failure.
INSERT INTO exclusions (kind, name, until, since, failures, reason, detail)
VALUES (%(kind)s, %(name)s, runyard_now() + make_interval(secs => %(first)s), runyard_now(), 1, %(reason)s,
    %(detail)s::jsonb)
ON CONFLICT (kind, name) DO UPDATE SET (until, failures, reason, detail) = (
    SELECT greatest(exclusions.until, runyard_now() + make_interval(secs => CASE WHEN tried.failed
               THEN greatest(%(first)s, least(%(longest)s, %(first)s * power(2, least(exclusions.failures, 20))))
               ELSE %(first)s END)),
           exclusions.failures + tried.failed::integer, excluded.reason, excluded.detail
    -- The trial of another exclusion counts if this one had expired as well: the same mint tested both.
    FROM (SELECT %(trial)s = exclusions.kind || ':' || exclusions.name
              OR (%(trial)s <> '' AND exclusions.until <= runyard_now()) AS failed) tried
);
