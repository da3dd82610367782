-- Take a lease that is free or expired, or renew one's own.
INSERT INTO turns (what, holder, until)
VALUES (%(what)s, %(holder)s, runyard_now() + make_interval(secs => %(every)s::double precision))
ON CONFLICT (what) DO UPDATE SET holder = excluded.holder, until = excluded.until
WHERE turns.until <= runyard_now() OR turns.holder = excluded.holder
RETURNING what;
