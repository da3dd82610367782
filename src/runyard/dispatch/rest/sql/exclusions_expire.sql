-- Expire the exclusions of a tenant and its repositories, so that one job of each is tried at once; returns them.
UPDATE exclusions SET until = runyard_now()
WHERE until > runyard_now() AND ((kind = 'account' AND name = %(tenant)s)
    OR (kind = 'repository' AND name IN (SELECT r.repository FROM repositories r WHERE r.tenant = %(tenant)s)))
RETURNING kind, name, reason, detail;
