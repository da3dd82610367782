-- Write a slot back by generation. A new generation is never one that was used before, even if the database
-- lost commits in between: it is at least the clock.
UPDATE slots SET
    generation = CASE WHEN %(bump)s
        THEN greatest(generation + 1, (extract(epoch FROM runyard_now()) * 1000000)::bigint)
        ELSE generation END,
    state = %(state)s, tenant = %(tenant)s, scope = %(scope)s, installation_id = %(installation_id)s,
    vcpus = %(vcpus)s, memory_gb = %(memory_gb)s, platform = %(platform)s,
    intended_job = %(intended_job)s::bigint, executing_job = %(executing_job)s::bigint,
    runner_name = %(runner_name)s, runner_id = %(runner_id)s::bigint, stamped = %(stamped)s,
    jit = %(jit)s::bytea, fence = %(fence)s, close_reason = %(close_reason)s,
    deadline = CASE WHEN %(wait)s::double precision IS NULL THEN deadline
        ELSE runyard_now() + make_interval(secs => %(wait)s::double precision) END,
    claimed_at = CASE WHEN %(state)s = 'idle' THEN NULL
        WHEN %(state)s IN ('offered', 'armed', 'executing') THEN coalesce(claimed_at, runyard_now()) ELSE claimed_at END,
    ended_at = CASE %(state)s WHEN 'idle' THEN NULL WHEN 'closed' THEN least(ended_at, runyard_now()) ELSE ended_at END,
    closed_at = CASE WHEN %(state)s = 'closed' THEN coalesce(closed_at, runyard_now()) END
WHERE pod_uid = %(pod_uid)s AND generation = %(before)s
RETURNING generation;
