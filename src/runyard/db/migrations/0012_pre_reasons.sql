-- Reasons are codes: a slug, and typed detail beside it. The release before writes sentences; triggers turn each of them
-- into a code while it is still running, so that the new release reads codes alone.
ALTER TABLE transitions
    ADD COLUMN reason text,
    ADD COLUMN detail jsonb NOT NULL DEFAULT '{}',
    ALTER COLUMN why SET DEFAULT '';
ALTER TABLE exclusions
    ADD COLUMN reason text NOT NULL DEFAULT 'unknown',
    ADD COLUMN detail jsonb NOT NULL DEFAULT '{}',
    ALTER COLUMN why SET DEFAULT '';
ALTER TABLE tenant_changes ADD COLUMN detail jsonb NOT NULL DEFAULT '{}';

-- The code of a sentence that the release before wrote, as {"reason": slug, "detail": {…}}. `about` is slot, job or
-- request; an entry of a job that is over has its conclusion as its sentence.
CREATE FUNCTION runyard_reason_of(about text, target text, sentence text) RETURNS jsonb
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN about = 'job' AND target = 'done'
        THEN jsonb_build_object('reason', 'ended', 'detail', jsonb_build_object(
            'conclusion', CASE sentence WHEN 'ended' THEN '' ELSE sentence END))
        ELSE coalesce((
            SELECT jsonb_build_object('reason', k.slug, 'detail', coalesce((
                SELECT jsonb_object_agg(f.name, CASE f.name
                    WHEN 'job' THEN to_jsonb(m.found[f.place]::bigint)
                    WHEN 'kind' THEN to_jsonb(lower(regexp_replace(
                        replace(m.found[f.place], ' ', '-'), '([a-z])([A-Z])', '\1-\2', 'g')))
                    ELSE to_jsonb(m.found[f.place]) END)
                FROM unnest(k.fields) WITH ORDINALITY AS f (name, place)
            ), '{}'))
            FROM (VALUES
                (1, 'first-poll', '^first poll$', '{}'::text[]),
                (3, 'job-fits', '^job (\d{1,18}) fits$', '{job}'),
                (4, 'adopted', '^vacant runner is meant for job (\d{1,18})$', '{job}'),
                (5, 'bound', '^meant for (.*)$', '{pod}'),
                (6, 'minted-and-stamped', '^minted and stamped$', '{}'),
                (7, 'stamp-invalid',
                    '^(?:mint [a-z]+, stamp [a-z]+|mint refused): Kubernetes does not take ''([^'']*)'' as a stamp',
                    '{tenant}'),
                (8, 'mint-refused', '^mint refused: (no answer) in time()$', '{kind,message}'),
                (9, 'mint-refused', '^mint refused: ([A-Za-z]+): (.*)$', '{kind,message}'),
                (10, 'mint-unclear', '^mint unclear, stamp ([a-z]+): (no answer) in time()$', '{stamp,kind,message}'),
                (11, 'mint-unclear', '^mint unclear, stamp ([a-z]+): ([A-Za-z]+): (.*)$', '{stamp,kind,message}'),
                (12, 'stamp-failed', '^mint minted, stamp ([a-z]+): ', '{stamp}'),
                (13, 'fence-deleted', '^fence: deleted$', '{}'),
                (14, 'fence-absent', '^fence: absent$', '{}'),
                (15, 'fence-busy', '^fence: busy$', '{}'),
                (16, 'pod-not-found', '^Pod is gone \(404\)$', '{}'),
                (17, 'pod-replaced', '^another uid under that name$', '{}'),
                (18, 'pod-succeeded', '^the agent recorded the end: Succeeded$', '{}'),
                (19, 'pod-failed', '^the agent recorded the end: Failed$', '{}'),
                (20, 'stamped-without-claim', '^stamped without a claim$', '{}'),
                (21, 'not-polling', '^does not ask for work$', '{}'),
                (22, 'awaits-approval', '^awaits an approval$', '{}'),
                (23, 'queued', '^queued$', '{}'),
                (24, 'still-queued', '^still queued$', '{}'),
                (25, 'started', '^started on (.*)$', '{runner}'),
                (26, 'job-started', '^job (\d{1,18}) started$', '{job}'),
                (27, 'job-ended', '^job (\d{1,18}) ended$', '{job}'),
                (28, 'runner-got-another', '^its runner got job (\d{1,18})$', '{job}'),
                (29, 'runner-executes-another', '^its runner executes another job$', '{}'),
                (30, 'job-went-elsewhere', '^job (\d{1,18}) went elsewhere$', '{job}'),
                (31, 'rerun-queued', '^queued again, under a new number$', '{}'),
                (32, 'run-unknown', '^refused: its run is not known$', '{}'),
                (33, 'job-over', '^refused: it is over already$', '{}'),
                (34, 'job-not-over', '^refused: it is not over yet$', '{}'),
                (35, 'run-has-others', '^refused: its run has other jobs$', '{}'),
                (36, 'rerun-refused', '^refused: (.*)$', '{message}'),
                (37, 'github-failed', '^not known, GitHub said no or nothing: (.*)$', '{message}')
            ) AS k (place, slug, pattern, fields), LATERAL regexp_match(sentence, k.pattern) AS m (found)
            WHERE m.found IS NOT NULL AND (k.place > 30) = (about = 'request')
            ORDER BY k.place LIMIT 1
        ), jsonb_build_object('reason', 'unknown', 'detail', jsonb_build_object('text', sentence)))
    END
$$;

CREATE FUNCTION runyard_reason_of_transition() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    code jsonb := runyard_reason_of(NEW.subject, NEW.target, NEW.why);
BEGIN
    NEW.reason := code ->> 'reason';
    NEW.detail := code -> 'detail';
    RETURN NEW;
END
$$;
CREATE TRIGGER transitions_reason BEFORE INSERT ON transitions
    FOR EACH ROW WHEN (NEW.reason IS NULL) EXECUTE FUNCTION runyard_reason_of_transition();

CREATE FUNCTION runyard_reason_of_slot() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.close_reason := runyard_reason_of('slot', 'closed', NEW.close_reason) ->> 'reason';
    RETURN NEW;
END
$$;
CREATE TRIGGER slots_close_reason BEFORE INSERT OR UPDATE OF close_reason ON slots
    FOR EACH ROW WHEN (NEW.close_reason ~ '[^a-z0-9-]') EXECUTE FUNCTION runyard_reason_of_slot();

-- The new release leaves the sentence as it is, so only the release before changes it.
CREATE FUNCTION runyard_reason_of_exclusion() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    code jsonb := runyard_reason_of('slot', '', 'mint refused: ' || NEW.why);
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.why IS NOT DISTINCT FROM OLD.why THEN
        RETURN NEW;
    END IF;
    NEW.reason := code ->> 'reason';
    NEW.detail := code -> 'detail';
    RETURN NEW;
END
$$;
CREATE TRIGGER exclusions_reason BEFORE INSERT OR UPDATE OF why ON exclusions
    FOR EACH ROW WHEN (NEW.why <> '') EXECUTE FUNCTION runyard_reason_of_exclusion();

-- What was asked about a job, and an exclusion that a person ended. Everything else of the trail is values.
CREATE FUNCTION runyard_reason_of_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    code jsonb;
BEGIN
    IF NEW.job_id IS NOT NULL THEN
        code := runyard_reason_of('request', '', NEW.target);
        NEW.target := code ->> 'reason';
    ELSE
        code := runyard_reason_of('slot', '', 'mint refused: ' || NEW.source);
        NEW.source := code ->> 'reason';
        NEW.target := 'tried-again';
        NEW.field := regexp_replace(NEW.field, '^passed over ([a-z]+) ', 'exclusion/\1/');
    END IF;
    NEW.detail := code -> 'detail';
    RETURN NEW;
END
$$;
CREATE TRIGGER tenant_changes_reason BEFORE INSERT OR UPDATE OF target ON tenant_changes
    FOR EACH ROW WHEN ((NEW.job_id IS NOT NULL AND NEW.target ~ '[^a-z0-9-]') OR NEW.field LIKE 'passed over %')
    EXECUTE FUNCTION runyard_reason_of_change();
