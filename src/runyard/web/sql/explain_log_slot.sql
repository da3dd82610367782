-- The last thing that the log says about a slot.
SELECT extract(epoch FROM at)::double precision AS at, source, target, why, actor FROM transitions
WHERE pod_uid = %(pod_uid)s ORDER BY id DESC LIMIT 1;
