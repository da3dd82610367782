-- Store the position in a gap.
UPDATE delivery_gaps SET page = %(page)s WHERE id = %(id)s;
