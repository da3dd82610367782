-- Record that the server is running. After a time without ticks, `served_since` starts again.
INSERT INTO service (served_since, last_tick) VALUES (runyard_now(), runyard_now())
ON CONFLICT (singleton) DO UPDATE SET
    served_since = CASE
        WHEN service.last_tick < runyard_now() - make_interval(secs => %(outage)s) THEN runyard_now()
        ELSE service.served_since END,
    last_tick = runyard_now();
