-- Inserts or touches a row for each payload before it is uploaded. Sorted by id, so that transactions do not deadlock.
INSERT INTO test_payloads (payload_id, account, project, content_id, storage_key, size, touched_at)
SELECT payload_id, %(account)s, %(project)s, content_id, storage_key, size, runyard_now()
FROM json_to_recordset(%(rows)s::json) AS r (payload_id uuid, content_id text, storage_key text, size bigint)
ORDER BY payload_id
ON CONFLICT (payload_id) DO UPDATE SET touched_at = runyard_now()
RETURNING payload_id::text AS payload_id, content_id, storage_key, size, uploaded_at IS NOT NULL AS uploaded
