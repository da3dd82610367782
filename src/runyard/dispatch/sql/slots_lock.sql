-- Slots in the order of their uids, locked.
SELECT pod_uid, pod_name, pool, generation, state, tenant, scope, installation_id, vcpus, memory_gb, platform,
    intended_job, executing_job, runner_name, runner_id, stamped, jit, fence, close_reason
FROM slots WHERE pod_uid = ANY(%(pod_uids)s::text[]) ORDER BY pod_uid COLLATE "C" FOR UPDATE;
