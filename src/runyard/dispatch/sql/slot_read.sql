-- One slot without a lock.
SELECT pod_uid, pod_name, pool, generation, state, tenant, scope, installation_id, vcpus, memory_gb, platform,
    intended_job, executing_job, runner_name, runner_id, stamped, jit, fence, close_reason
FROM slots WHERE pod_uid = %(pod_uid)s;
