-- Slots that hold something, or whose Pod nobody has proven gone.
SELECT pod_uid, pod_name, state, fence, intended_job, executing_job FROM slots
WHERE state <> 'closed' OR fence = 'due'
ORDER BY pod_name, pod_uid;
