-- The last transition of a slot.
SELECT extract(epoch FROM at)::double precision AS at, source, target, reason, detail, actor FROM transitions
WHERE pod_uid = %(pod_uid)s ORDER BY id DESC LIMIT 1;
