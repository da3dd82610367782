-- GitHub refused once more: twice as long as the last time, within bounds.
INSERT INTO exclusions (kind, name, until, since, failures, why)
VALUES (%(kind)s, %(name)s, runyard_now() + make_interval(secs => %(first)s), runyard_now(), 1, %(why)s)
ON CONFLICT (kind, name) DO UPDATE SET
    until = greatest(exclusions.until, runyard_now() + make_interval(
        secs => greatest(%(first)s, least(%(longest)s, %(first)s * power(2, least(exclusions.failures, 20)))))),
    failures = exclusions.failures + 1, why = excluded.why;
