-- The job that will deliver, or delivers, a run; the one under way first. Each of the two has an index of its own.
SELECT id, status::text AS status FROM procrastinate_jobs
WHERE (queueing_lock = %(lock)s AND status = 'todo') OR (lock = %(lock)s AND status = 'doing')
ORDER BY status DESC, id LIMIT 1
FOR UPDATE
