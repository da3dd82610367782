-- Consumers with a recent heartbeat. The queue writes heartbeats with the database server's clock, as we do.
SELECT count(*) AS alive, max(last_heartbeat) AS last_heartbeat FROM procrastinate_workers
WHERE last_heartbeat > runyard_now() - make_interval(secs => %(within)s)
