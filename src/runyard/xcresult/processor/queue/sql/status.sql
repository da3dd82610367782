SELECT status::text AS status FROM procrastinate_jobs WHERE id = %(job)s FOR UPDATE
