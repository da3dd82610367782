-- Deletes tests without results. Checks some rows after the last one checked before; `micros` and `last` are the last
-- one checked now.
WITH seen AS (
    SELECT case_id, last_seen FROM test_cases
    WHERE last_seen < runyard_now() - make_interval(secs => %(older)s)
        AND (last_seen, case_id) > (
            'epoch'::timestamptz + %(micros)s * interval '1 microsecond', %(after)s::uuid
        )
    ORDER BY last_seen, case_id LIMIT %(batch)s
), unused AS (
    SELECT test.case_id FROM test_cases AS test JOIN seen USING (case_id)
    WHERE test.last_seen < runyard_now() - make_interval(secs => %(older)s)
        AND NOT EXISTS (SELECT FROM test_case_runs AS ran WHERE ran.case_id = test.case_id)
    ORDER BY test.case_id FOR UPDATE OF test SKIP LOCKED
), gone AS (
    DELETE FROM test_cases AS test USING unused WHERE test.case_id = unused.case_id RETURNING test.case_id
)
SELECT (SELECT count(*) FROM gone) AS gone, (SELECT count(*) FROM seen) AS checked,
    (extract(epoch FROM last.last_seen) * 1000000)::bigint AS micros, last.case_id::text AS last
FROM (SELECT 1) AS always
LEFT JOIN (SELECT last_seen, case_id FROM seen ORDER BY last_seen DESC, case_id DESC LIMIT 1) AS last ON true;
