-- End the exclusions of a repository, of its account and of GitHub after a successful mint.
DELETE FROM exclusions
WHERE (kind = 'repository' AND name = %(repository)s) OR (kind = 'account' AND name = %(tenant)s) OR kind = 'github';
