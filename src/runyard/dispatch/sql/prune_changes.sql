-- Delete the oldest entries of the audit trail.
DELETE FROM tenant_changes WHERE id IN (
    SELECT c.id FROM tenant_changes c WHERE c.at < runyard_now() - make_interval(secs => %(older)s)
    ORDER BY c.at, c.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
