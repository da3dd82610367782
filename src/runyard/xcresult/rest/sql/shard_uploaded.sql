-- The uploaded object, as object storage reports it.
UPDATE test_runs SET archive_bytes = %(size)s, uploaded_at = runyard_now()
WHERE run_id = %(run_id)s::uuid AND shard = %(shard)s AND state = 'awaiting_upload';
