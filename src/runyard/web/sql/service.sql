-- Since when the service has run without an outage, and whether its last sweep is recent.
SELECT extract(epoch FROM served_since)::double precision AS served_since,
    extract(epoch FROM last_tick)::double precision AS last_tick,
    service.last_tick < runyard_now() - make_interval(secs => %(late)s) AS late
FROM service;
