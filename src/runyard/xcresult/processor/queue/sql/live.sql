-- The job that will deliver, or delivers, a run; the one under way first.
SELECT id, status::text AS status FROM procrastinate_jobs
WHERE queueing_lock = %(lock)s AND status IN ('todo', 'doing')
ORDER BY status DESC, id LIMIT 1
FOR UPDATE
