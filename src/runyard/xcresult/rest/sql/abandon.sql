-- Gives up a run that was announced and never uploaded; an object under its key is to be deleted.
WITH gone AS (
    DELETE FROM test_runs
    WHERE run_id = %(run_id)s::uuid AND shard = %(shard)s AND state = 'awaiting_upload'
    RETURNING storage_key
), pending AS (
    INSERT INTO blob_graves (storage_key, kind, next_try)
    SELECT storage_key, 'upload', runyard_now() + make_interval(secs => %(grace)s) FROM gone
    ON CONFLICT (storage_key) DO NOTHING
)
SELECT count(*) AS gone FROM gone;
