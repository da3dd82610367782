-- The status of a job; locked until the end of the transaction.
SELECT status::text AS status FROM procrastinate_jobs WHERE id = %(job)s FOR UPDATE
