-- Deletes old runs that have no large tables of rows left; their uploads are to be deleted.
WITH old AS (
    SELECT run_id, shard FROM test_runs AS run
    WHERE created_at < runyard_now() - make_interval(secs => %(older)s)
        AND state IN ('processed', 'failed_processing')
        AND NOT EXISTS (SELECT FROM test_case_runs AS each WHERE (each.run_id, each.shard) = (run.run_id, run.shard))
        AND NOT EXISTS (SELECT FROM test_failures AS each WHERE (each.run_id, each.shard) = (run.run_id, run.shard))
        AND NOT EXISTS (SELECT FROM test_repetitions AS each WHERE (each.run_id, each.shard) = (run.run_id, run.shard))
        AND NOT EXISTS (SELECT FROM test_arguments AS each WHERE (each.run_id, each.shard) = (run.run_id, run.shard))
        AND NOT EXISTS (SELECT FROM test_attachments AS each WHERE (each.run_id, each.shard) = (run.run_id, run.shard))
        AND NOT EXISTS (SELECT FROM coverage_files AS each WHERE (each.run_id, each.shard) = (run.run_id, run.shard))
    ORDER BY created_at, run_id, shard LIMIT %(limit)s FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM test_runs AS run USING old
    WHERE run.run_id = old.run_id AND run.shard = old.shard
    RETURNING run.storage_key, run.upload_gone
), pending AS (
    INSERT INTO blob_graves (storage_key, kind)
    SELECT storage_key, 'upload' FROM gone WHERE NOT upload_gone ORDER BY storage_key
    ON CONFLICT (storage_key) DO NOTHING
)
SELECT count(*) AS gone FROM gone;
