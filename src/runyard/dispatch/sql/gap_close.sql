-- Delete a gap that was compared to its end.
DELETE FROM delivery_gaps WHERE id = %(id)s;
