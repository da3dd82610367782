-- Record the poll of an idle Pod: change only its deadline.
UPDATE slots SET last_beat = runyard_now(), deadline = runyard_now() + make_interval(secs => %(wait)s)
WHERE pod_uid = %(pod_uid)s AND generation = %(before)s;
