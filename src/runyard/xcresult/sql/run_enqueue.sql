-- Queues an uploaded run. One that is queued or being processed stays as it is.
UPDATE test_runs
SET state = 'queued', due_at = runyard_now(), queued_at = runyard_now(), finished_at = NULL, spent = 0, claims = 0,
    uploaded_at = COALESCE(uploaded_at, runyard_now()), reason_code = '', reason_detail = '{}'
WHERE run_id = %(run_id)s AND shard = %(shard)s AND state IN ('awaiting_upload', 'processed', 'failed_processing')
RETURNING due_at
