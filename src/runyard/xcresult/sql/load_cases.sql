-- Upserts tests, before their results. Sorted by id, so that concurrent transactions do not deadlock.
INSERT INTO test_cases (case_id, account, project, module, suite, name, identifier, first_seen, last_seen)
SELECT DISTINCT ON (case_id)
    case_id, %(account)s, %(project)s, module, suite, name, identifier, %(ran_at)s, %(ran_at)s
FROM json_to_recordset(%(rows)s::json) AS r (case_id uuid, module text, suite text, name text, identifier text)
ORDER BY case_id
ON CONFLICT (case_id) DO UPDATE
SET first_seen = LEAST(test_cases.first_seen, excluded.first_seen),
    last_seen = GREATEST(test_cases.last_seen, excluded.last_seen)
