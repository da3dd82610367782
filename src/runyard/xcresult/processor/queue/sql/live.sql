-- The job that waits to deliver a run or is delivering it; the latter first. Each has an index of its own.
SELECT id, status::text AS status FROM procrastinate_jobs
WHERE (queueing_lock = %(lock)s AND status = 'todo') OR (lock = %(lock)s AND status = 'doing')
ORDER BY status DESC, id LIMIT 1
FOR UPDATE
