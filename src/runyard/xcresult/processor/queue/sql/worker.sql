-- Whether a consumer is still known; locked, so that nobody forgets it meanwhile.
SELECT id FROM procrastinate_workers WHERE id = %(worker)s FOR UPDATE
