-- Who is alive, by the queue's own clock: that is how it writes heartbeats down.
SELECT count(*) AS alive, max(last_heartbeat) AS heard FROM procrastinate_workers
WHERE last_heartbeat > statement_timestamp() - make_interval(secs => %(within)s)
