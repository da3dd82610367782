-- A stretch has been compared to its end.
DELETE FROM delivery_gaps WHERE id = %(id)s;
