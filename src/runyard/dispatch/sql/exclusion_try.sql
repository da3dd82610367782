-- Start the trial of an expired exclusion: until its mint has ended, no other job is tried.
UPDATE exclusions SET until = runyard_now() + make_interval(secs => %(within)s)
WHERE kind = %(kind)s AND name = %(name)s AND until <= runyard_now();
