-- Record when the newest Pod with that name ended. The time only ever becomes earlier, and is neither before the Pod's
-- beginning nor in the future.
UPDATE slots SET ended_at = least(
    ended_at, runyard_now(), greatest(to_timestamp(%(ended_at)s::double precision), coalesce(claimed_at, opened_at))
)
WHERE pod_uid = (
    SELECT s.pod_uid FROM slots s WHERE s.pod_name = %(pod_name)s ORDER BY s.opened_at DESC, s.pod_uid LIMIT 1
)
RETURNING pod_uid, state;
