-- What only the release before needed: its sentences, and what made slugs and detail of them.
DROP TRIGGER test_runs_reason ON test_runs;
DROP TRIGGER test_runs_sentence ON test_runs;
DROP TRIGGER test_attempts_reason ON test_attempts;
DROP TRIGGER test_attempts_sentence ON test_attempts;
DROP FUNCTION runyard_reason_to_slug(), runyard_reason_without_sentence();
DROP FUNCTION runyard_reason_of_attempt(text, text);
ALTER TABLE test_runs DROP COLUMN reason;
ALTER TABLE test_attempts DROP COLUMN reason;
