-- One is tried now: until it is known how that ends, nobody else is.
UPDATE exclusions SET until = runyard_now() + make_interval(secs => %(within)s)
WHERE kind = %(kind)s AND name = %(name)s AND until <= runyard_now();
