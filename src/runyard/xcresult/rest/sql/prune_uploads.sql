-- Deletes uploads that were processed long ago; their runs stay.
WITH old AS (
    SELECT run_id, shard FROM test_runs
    WHERE finished_at < runyard_now() - make_interval(secs => %(older)s) AND NOT upload_gone
        AND state IN ('processed', 'failed_processing')
    ORDER BY finished_at, run_id, shard LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), gone AS (
    UPDATE test_runs AS run SET upload_gone = true FROM old
    WHERE run.run_id = old.run_id AND run.shard = old.shard
    RETURNING run.storage_key
), pending AS (
    INSERT INTO blob_graves (storage_key, kind)
    SELECT storage_key, 'upload' FROM gone ORDER BY storage_key
    ON CONFLICT (storage_key) DO NOTHING
)
SELECT count(*) AS gone FROM gone;
