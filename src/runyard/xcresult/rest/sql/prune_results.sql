-- Deletes rows of the oldest runs that are to be deleted, some of each table: a large run is deleted in batches.
WITH old AS (
    SELECT run_id, shard FROM test_runs
    WHERE created_at < runyard_now() - make_interval(secs => %(older)s)
        AND state IN ('processed', 'failed_processing')
    ORDER BY created_at, run_id, shard LIMIT %(runs)s FOR UPDATE SKIP LOCKED
), failures AS (
    DELETE FROM test_failures WHERE ctid = ANY(ARRAY(
        SELECT each.ctid FROM old JOIN test_failures AS each USING (run_id, shard) LIMIT %(limit)s
    )) RETURNING 1
), repetitions AS (
    DELETE FROM test_repetitions WHERE ctid = ANY(ARRAY(
        SELECT each.ctid FROM old JOIN test_repetitions AS each USING (run_id, shard) LIMIT %(limit)s
    )) RETURNING 1
), arguments AS (
    DELETE FROM test_arguments WHERE ctid = ANY(ARRAY(
        SELECT each.ctid FROM old JOIN test_arguments AS each USING (run_id, shard) LIMIT %(limit)s
    )) RETURNING 1
), attachments AS (
    DELETE FROM test_attachments WHERE ctid = ANY(ARRAY(
        SELECT each.ctid FROM old JOIN test_attachments AS each USING (run_id, shard) LIMIT %(limit)s
    )) RETURNING 1
), cases AS (
    DELETE FROM test_case_runs WHERE ctid = ANY(ARRAY(
        SELECT each.ctid FROM old JOIN test_case_runs AS each USING (run_id, shard) LIMIT %(limit)s
    )) RETURNING 1
), files AS (
    DELETE FROM coverage_files WHERE ctid = ANY(ARRAY(
        SELECT each.ctid FROM old JOIN coverage_files AS each USING (run_id, shard) LIMIT %(limit)s
    )) RETURNING 1
)
SELECT GREATEST(
    (SELECT count(*) FROM failures), (SELECT count(*) FROM repetitions), (SELECT count(*) FROM arguments),
    (SELECT count(*) FROM attachments), (SELECT count(*) FROM cases), (SELECT count(*) FROM files)
) AS gone;
