-- Every slot that is open or still has to be fenced.
SELECT pod_uid, pod_name, pool, state, tenant, scope, platform, vcpus, memory_gb,
    intended_job, executing_job, runner_name, fence
FROM slots WHERE state <> 'closed' OR fence = 'due' ORDER BY pod_uid;
