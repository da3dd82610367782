-- What became of a job; locked, so that it stays so until we have changed it.
SELECT status::text AS status FROM procrastinate_jobs WHERE id = %(job)s FOR UPDATE
