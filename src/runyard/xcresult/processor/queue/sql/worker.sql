SELECT id FROM procrastinate_workers WHERE id = %(worker)s FOR UPDATE
