-- A page of a stretch has been compared.
UPDATE delivery_gaps SET page = %(page)s WHERE id = %(id)s;
