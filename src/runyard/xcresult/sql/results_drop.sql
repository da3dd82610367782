-- Deletes the results of an earlier processing of the run.
WITH
    modules AS (DELETE FROM test_modules WHERE run_id = %(run_id)s AND shard = %(shard)s),
    suites AS (DELETE FROM test_suites WHERE run_id = %(run_id)s AND shard = %(shard)s),
    cases AS (DELETE FROM test_case_runs WHERE run_id = %(run_id)s AND shard = %(shard)s),
    arguments AS (DELETE FROM test_arguments WHERE run_id = %(run_id)s AND shard = %(shard)s),
    repetitions AS (DELETE FROM test_repetitions WHERE run_id = %(run_id)s AND shard = %(shard)s),
    failures AS (DELETE FROM test_failures WHERE run_id = %(run_id)s AND shard = %(shard)s),
    crashes AS (DELETE FROM test_crashes WHERE run_id = %(run_id)s AND shard = %(shard)s),
    attachments AS (DELETE FROM test_attachments WHERE run_id = %(run_id)s AND shard = %(shard)s),
    targets AS (DELETE FROM coverage_targets WHERE run_id = %(run_id)s AND shard = %(shard)s)
DELETE FROM coverage_files WHERE run_id = %(run_id)s AND shard = %(shard)s
