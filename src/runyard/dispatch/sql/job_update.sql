-- Write a job back. Its times are set once, when the state is reached; when it was last claimed, each time.
UPDATE jobs SET
    state = %(state)s, verified = %(verified)s, runner_name = %(runner_name)s, conclusion = %(conclusion)s,
    enqueued_at = CASE WHEN state = 'waiting' AND %(state)s = 'queued' THEN runyard_now() ELSE enqueued_at END,
    claimed_at = CASE WHEN %(state)s = 'bound' THEN runyard_now() ELSE claimed_at END,
    started_at = CASE WHEN %(state)s = 'running' THEN coalesce(started_at, runyard_now()) ELSE started_at END,
    completed_at = CASE WHEN %(state)s = 'done' THEN coalesce(completed_at, runyard_now()) END,
    look_at = CASE WHEN %(look_in)s::double precision IS NULL THEN look_at
        ELSE runyard_now() + make_interval(secs => %(look_in)s::double precision) END
WHERE job_id = %(job_id)s
RETURNING labels, extract(epoch FROM runyard_now() - enqueued_at)::double precision AS queued,
    extract(epoch FROM runyard_now() - claimed_at)::double precision AS claimed,
    extract(epoch FROM runyard_now() - started_at)::double precision AS started;
