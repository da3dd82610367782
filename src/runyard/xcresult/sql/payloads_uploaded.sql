-- Their bytes are there: the next run of the project need not bring them.
UPDATE test_payloads SET uploaded_at = COALESCE(uploaded_at, runyard_now()), touched_at = runyard_now()
WHERE payload_id = ANY(%(payloads)s::uuid[])
