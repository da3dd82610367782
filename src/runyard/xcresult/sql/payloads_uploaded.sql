-- Marks payloads as stored: the next run of the project need not upload them. Sorted by id, against deadlocks.
WITH new AS (
    SELECT payload_id FROM test_payloads
    WHERE payload_id = ANY(%(payloads)s::uuid[]) AND uploaded_at IS NULL
    ORDER BY payload_id FOR NO KEY UPDATE
)
UPDATE test_payloads AS payload SET uploaded_at = runyard_now(), touched_at = runyard_now()
FROM new WHERE payload.payload_id = new.payload_id
