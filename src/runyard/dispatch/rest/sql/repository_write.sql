-- Write a repository's weight and priority.
UPDATE repositories SET weight = %(weight)s, priority = %(priority)s
WHERE tenant = %(tenant)s AND repository = %(repository)s;
