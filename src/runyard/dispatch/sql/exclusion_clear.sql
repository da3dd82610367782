-- A runner was made: nothing of this is in the way any more.
DELETE FROM exclusions
WHERE (kind = 'repository' AND name = %(repository)s) OR (kind = 'account' AND name = %(tenant)s) OR kind = 'github';
