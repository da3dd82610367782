-- Slots that are not closed, or whose runner is still to be fenced.
SELECT pod_uid, pod_name, state, fence, intended_job, executing_job FROM slots
WHERE state <> 'closed' OR fence = 'due'
ORDER BY pod_name, pod_uid;
