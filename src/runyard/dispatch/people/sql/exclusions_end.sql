-- Somebody says that it is repaired: one job of theirs may try at once. What it was refused for is told.
UPDATE exclusions SET until = runyard_now()
WHERE until > runyard_now() AND ((kind = 'account' AND name = %(tenant)s)
    OR (kind = 'repository' AND name IN (SELECT r.repository FROM repositories r WHERE r.tenant = %(tenant)s)))
RETURNING kind, name, why;
