-- Write the decisions of transitions in one statement: jobs, slots, and a log entry for each change.
-- A job's times are set once, when it reaches a state; `claimed_at` at every claim.
-- Returns jobs with their times, as seconds before now, and slots with their generations.
-- A slot whose generation does not match gets none, which its column refuses: then nothing is written. A new generation
-- is at least the current time, so it never repeats, even if the database lost commits in between.
WITH changed AS (
    UPDATE jobs j SET
        state = c.state, verified = c.verified, runner_name = c.runner_name, conclusion = c.conclusion,
        enqueued_at = CASE WHEN j.state = 'waiting' AND c.state = 'queued' THEN runyard_now() ELSE j.enqueued_at END,
        claimed_at = CASE WHEN c.state = 'bound' THEN runyard_now() ELSE j.claimed_at END,
        started_at = CASE WHEN c.state = 'running' THEN coalesce(j.started_at, runyard_now()) ELSE j.started_at END,
        completed_at = CASE WHEN c.state = 'done' THEN coalesce(j.completed_at, runyard_now()) END,
        look_at = CASE WHEN c.recheck_in IS NULL THEN j.look_at
            ELSE runyard_now() + make_interval(secs => c.recheck_in) END
    FROM json_to_recordset(%(jobs)s::json) AS c (
        job_id bigint, state text, verified boolean, runner_name text, conclusion text, recheck_in double precision
    )
    WHERE j.job_id = c.job_id
    RETURNING j.job_id, j.labels, extract(epoch FROM runyard_now() - j.enqueued_at)::double precision AS queued,
        extract(epoch FROM runyard_now() - j.claimed_at)::double precision AS claimed,
        extract(epoch FROM runyard_now() - j.started_at)::double precision AS started
), logged AS (
    INSERT INTO transitions (at, subject, pod_uid, job_id, source, target, reason, detail, actor)
    SELECT runyard_now(), c.subject, c.pod_uid, c.job_id, c.source, c.target, c.reason, c.detail, %(actor)s
    FROM json_to_recordset(%(log)s::json) AS c (
        place integer, subject text, pod_uid text, job_id bigint, source text, target text,
        reason text, detail jsonb
    )
    ORDER BY c.place
), moved AS (
    UPDATE slots s SET
        generation = CASE WHEN s.generation <> c.before THEN NULL WHEN c.bump
            THEN greatest(s.generation + 1, (extract(epoch FROM runyard_now()) * 1000000)::bigint)
            ELSE s.generation END,
        state = c.state, tenant = c.tenant, scope = c.scope, installation_id = c.installation_id,
        vcpus = c.vcpus, memory_gb = c.memory_gb, platform = c.platform,
        intended_job = c.intended_job, executing_job = c.executing_job,
        runner_name = c.runner_name, runner_id = c.runner_id, stamped = c.stamped,
        jit = c.jit, fence = c.fence, close_reason = c.close_reason,
        deadline = CASE WHEN c.wait IS NULL THEN s.deadline
            ELSE runyard_now() + make_interval(secs => c.wait) END,
        claimed_at = CASE WHEN c.state = 'idle' THEN NULL
            WHEN c.state IN ('offered', 'armed', 'executing') THEN coalesce(s.claimed_at, runyard_now())
            ELSE s.claimed_at END,
        ended_at = CASE c.state WHEN 'idle' THEN NULL WHEN 'closed' THEN least(s.ended_at, runyard_now())
            ELSE s.ended_at END,
        closed_at = CASE WHEN c.state = 'closed' THEN coalesce(s.closed_at, runyard_now()) END
    FROM json_to_recordset(%(slots)s::json) AS c (
        pod_uid text, before bigint, bump boolean, state text, tenant text, scope text, installation_id bigint,
        vcpus integer, memory_gb integer, platform text, intended_job bigint, executing_job bigint,
        runner_name text, runner_id bigint, stamped boolean, jit bytea, fence text, close_reason text,
        wait double precision
    )
    WHERE s.pod_uid = c.pod_uid
    RETURNING s.pod_uid, s.generation
)
SELECT pod_uid, generation, NULL::bigint AS job_id, NULL::text[] AS labels, NULL::double precision AS queued,
    NULL::double precision AS claimed, NULL::double precision AS started FROM moved
UNION ALL
SELECT NULL, NULL, job_id, labels, queued, claimed, started FROM changed
ORDER BY job_id, pod_uid;
