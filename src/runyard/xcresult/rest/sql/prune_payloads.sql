-- Deletes payloads that no attachment refers to and whose row was not touched recently (a processor touches it before
-- it refers to it). Checks some rows after the last one checked before; `micros` and `last` are the last one checked now.
WITH seen AS (
    SELECT payload_id, touched_at FROM test_payloads
    WHERE touched_at < runyard_now() - make_interval(secs => %(older)s)
        AND (touched_at, payload_id) > (
            'epoch'::timestamptz + %(micros)s * interval '1 microsecond', %(after)s::uuid
        )
    ORDER BY touched_at, payload_id LIMIT %(batch)s
), unused AS (
    SELECT payload.payload_id FROM test_payloads AS payload JOIN seen USING (payload_id)
    WHERE payload.touched_at < runyard_now() - make_interval(secs => %(older)s)
        AND NOT EXISTS (SELECT FROM test_attachments AS user_of WHERE user_of.payload_id = payload.payload_id)
    ORDER BY payload.payload_id FOR UPDATE OF payload SKIP LOCKED
), gone AS (
    DELETE FROM test_payloads AS payload USING unused
    WHERE payload.payload_id = unused.payload_id
    RETURNING payload.storage_key
), pending AS (
    INSERT INTO blob_graves (storage_key, kind)
    SELECT storage_key, 'payload' FROM gone ORDER BY storage_key
    ON CONFLICT (storage_key) DO NOTHING
)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM seen) AS checked,
    (extract(epoch FROM last.touched_at) * 1000000)::bigint AS micros, last.payload_id::text AS last
FROM (SELECT 1) AS always
LEFT JOIN (SELECT touched_at, payload_id FROM seen ORDER BY touched_at DESC, payload_id DESC LIMIT 1) AS last ON true;
