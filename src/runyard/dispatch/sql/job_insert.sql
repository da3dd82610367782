-- A job that we did not know.
INSERT INTO jobs (
    job_id, tenant, repository, labels, state, verified, runner_name, conclusion, enqueued_at, look_at
) VALUES (
    %(job_id)s, %(tenant)s, %(repository)s, %(labels)s::text[], %(state)s, %(verified)s,
    %(runner_name)s, %(conclusion)s, runyard_now(),
    runyard_now() + make_interval(secs => coalesce(%(look_in)s::double precision, 0))
)
ON CONFLICT DO NOTHING;
