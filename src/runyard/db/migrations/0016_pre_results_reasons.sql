-- The reasons of test runs and attempts are codes, too: a slug, and typed detail beside it. The release before writes its
-- own codes and sentences; a trigger turns them into slugs and detail, so that the new release reads these alone.
ALTER TABLE test_runs ADD COLUMN reason_detail jsonb NOT NULL DEFAULT '{}';
ALTER TABLE test_attempts ADD COLUMN reason_detail jsonb NOT NULL DEFAULT '{}';

-- The slug of a code and a sentence of the release before, as {"reason": slug, "detail": {…}}; a slug stays as it is. A
-- code whose sentence was the text of an exception has that text as its message.
CREATE FUNCTION runyard_reason_of_attempt(code text, sentence text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN code = '' THEN jsonb_build_object('reason', '', 'detail', '{}'::jsonb)
        ELSE coalesce((
            SELECT jsonb_build_object('reason', k.slug, 'detail', coalesce((
                SELECT jsonb_object_agg(f.name, CASE
                    WHEN f.name IN ('limit', 'size', 'free', 'status') THEN to_jsonb(m.found[f.place]::numeric)
                    ELSE to_jsonb(m.found[f.place]) END)
                FROM unnest(k.fields) WITH ORDINALITY AS f (name, place)
            ), '{}'))
            FROM (VALUES
                ('no_tests', 'no-tests', '', '{}'::text[]),
                ('timeout', 'download-timeout', '^not downloaded within (\d+(?:\.\d+)?(?:e\+\d{1,2})?) s$', '{limit}'),
                ('timeout', 'read-timeout', '^not read within (\d+(?:\.\d+)?(?:e\+\d{1,2})?) s$', '{limit}'),
                ('timeout', 'cpu-time-exceeded', '^the limit of processor time is exceeded$', '{}'),
                ('out_of_memory', 'memory-exceeded',
                    '^reading the bundle takes more than (\d{1,18}) bytes of memory$', '{limit}'),
                ('no_space', 'no-space-for-upload',
                    '^the upload has (\d{1,18}) bytes, the scratch (\d{1,18}) free$', '{size,free}'),
                ('no_space', 'no-space-for-bundle',
                    '^the bundle takes about (\d{1,18}) bytes, the scratch has (\d{1,18}) free$', '{size,free}'),
                ('upload_missing', 'upload-missing', '', '{}'),
                ('reader_crashed', 'reader-crashed', '^the child process died of (.*)$', '{signal}'),
                ('reader_crashed', 'reader-exited', '^the child process exited with (\d{1,9}): (.*)$',
                    '{status,message}'),
                ('workdir_gone', 'workdir-gone', '', '{}'),
                ('released', 'released', '', '{}'),
                ('worker_lost', 'worker-lost', '^(.*) sent no heartbeat until the lease expired$', '{owner}')
            ) AS k (code, slug, pattern, fields), LATERAL regexp_match(sentence, k.pattern) AS m (found)
            WHERE m.found IS NOT NULL AND runyard_reason_of_attempt.code IN (k.code, k.slug)
        ), jsonb_build_object('reason', replace(code, '_', '-'), 'detail', jsonb_build_object('message', sentence)))
    END
$$;

-- Only the statements of the release before set `reason`.
CREATE FUNCTION runyard_reason_to_slug() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    code jsonb := runyard_reason_of_attempt(NEW.reason_code, NEW.reason);
BEGIN
    NEW.reason_code := code ->> 'reason';
    NEW.reason_detail := code -> 'detail';
    RETURN NEW;
END
$$;
CREATE TRIGGER test_runs_reason BEFORE UPDATE OF reason ON test_runs
    FOR EACH ROW EXECUTE FUNCTION runyard_reason_to_slug();
CREATE TRIGGER test_attempts_reason BEFORE UPDATE OF reason ON test_attempts
    FOR EACH ROW EXECUTE FUNCTION runyard_reason_to_slug();

-- Only the new release sets `reason_detail`. What the release before then reads is the slug without a sentence, and not
-- the sentence of an earlier attempt.
CREATE FUNCTION runyard_reason_without_sentence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.reason := '';
    RETURN NEW;
END
$$;
CREATE TRIGGER test_runs_sentence BEFORE UPDATE OF reason_detail ON test_runs
    FOR EACH ROW EXECUTE FUNCTION runyard_reason_without_sentence();
CREATE TRIGGER test_attempts_sentence BEFORE UPDATE OF reason_detail ON test_attempts
    FOR EACH ROW EXECUTE FUNCTION runyard_reason_without_sentence();
