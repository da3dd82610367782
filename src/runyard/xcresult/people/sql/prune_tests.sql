-- Tests that no run tells of any more.
WITH old AS (
    SELECT test.case_id FROM test_cases AS test
    WHERE test.last_seen < runyard_now() - make_interval(secs => %(older)s)
        AND NOT EXISTS (SELECT FROM test_case_runs AS ran WHERE ran.case_id = test.case_id)
    ORDER BY test.last_seen, test.case_id LIMIT %(limit)s FOR UPDATE OF test SKIP LOCKED
), gone AS (
    DELETE FROM test_cases AS test USING old WHERE test.case_id = old.case_id RETURNING test.case_id
)
SELECT count(*) AS gone FROM gone;
