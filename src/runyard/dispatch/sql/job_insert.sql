-- Insert a new job, and its repository if that is new. Fails if the job is known.
WITH known AS (
    INSERT INTO repositories (tenant, repository) VALUES (%(tenant)s, %(repository)s) ON CONFLICT DO NOTHING
)
INSERT INTO jobs (
    job_id, tenant, repository, labels, state, verified, runner_name, conclusion, enqueued_at, look_at,
    started_at, completed_at,
    run_id, run_attempt, name, workflow, branch, head_sha, trust, priority
) VALUES (
    %(job_id)s, %(tenant)s, %(repository)s, %(labels)s::text[], %(state)s, %(verified)s,
    %(runner_name)s, %(conclusion)s, runyard_now(),
    runyard_now() + make_interval(secs => coalesce(%(recheck_in)s::double precision, 0)),
    CASE %(state)s WHEN 'running' THEN runyard_now() END, CASE %(state)s WHEN 'done' THEN runyard_now() END,
    %(run_id)s, %(run_attempt)s, %(name)s, %(workflow)s, %(branch)s, %(head_sha)s, %(trust)s,
    coalesce((
        SELECT r.priority FROM repositories r WHERE r.tenant = %(tenant)s AND r.repository = %(repository)s
    ), 0)
)
RETURNING job_id;
