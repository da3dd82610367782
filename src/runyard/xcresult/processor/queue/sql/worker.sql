-- Whether a consumer exists; locked, so that it is not removed meanwhile.
SELECT id FROM procrastinate_workers WHERE id = %(worker)s FOR UPDATE
