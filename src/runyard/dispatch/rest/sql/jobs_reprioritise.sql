-- Give queued jobs the new priority of their repository.
UPDATE jobs SET priority = %(priority)s
WHERE state IN ('waiting', 'queued') AND tenant = %(tenant)s AND repository = %(repository)s
    AND priority <> %(priority)s;
