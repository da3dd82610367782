-- Delete deliveries that GitHub does not store any more, oldest first.
DELETE FROM deliveries WHERE guid IN (
    SELECT d.guid FROM deliveries d WHERE d.received_at < runyard_now() - make_interval(secs => %(older)s)
    ORDER BY d.received_at, d.guid LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
