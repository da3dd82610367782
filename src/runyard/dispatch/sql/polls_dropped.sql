-- Record that the last polls of these Pods were cut off: at least so many seconds ago. A Pod that has polled since, here or at
-- another replica, keeps its beat.
WITH dropped AS (
    SELECT s.pod_uid FROM slots s
    JOIN unnest(%(pod_uids)s::text[], %(ages)s::double precision[]) AS d (pod_uid, age) USING (pod_uid)
    WHERE s.state <> 'closed' AND s.last_beat <= runyard_now() - make_interval(secs => d.age)
    ORDER BY s.pod_uid FOR NO KEY UPDATE OF s
)
UPDATE slots SET dropped_beat = last_beat FROM dropped WHERE slots.pod_uid = dropped.pod_uid;
