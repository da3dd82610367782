-- Who is alive. Heartbeats are written down by the queue, with the server's clock: it is ours as well.
SELECT count(*) AS alive, max(last_heartbeat) AS heard FROM procrastinate_workers
WHERE last_heartbeat > runyard_now() - make_interval(secs => %(within)s)
