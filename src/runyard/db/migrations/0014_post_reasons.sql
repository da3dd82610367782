-- What only the release before needed: its sentences, and what made codes of them. Whatever it wrote last has its code.
UPDATE transitions t SET reason = code.found ->> 'reason', detail = code.found -> 'detail'
FROM (SELECT id, runyard_reason_of(subject, target, why) AS found FROM transitions WHERE reason IS NULL) AS code
WHERE t.id = code.id;
DROP TRIGGER transitions_reason ON transitions;
DROP TRIGGER slots_close_reason ON slots;
DROP TRIGGER exclusions_reason ON exclusions;
DROP TRIGGER tenant_changes_reason ON tenant_changes;
DROP FUNCTION runyard_reason_of_transition(), runyard_reason_of_slot(), runyard_reason_of_exclusion(),
    runyard_reason_of_change();
DROP FUNCTION runyard_reason_of(text, text, text);
ALTER TABLE transitions ALTER COLUMN reason SET NOT NULL, DROP COLUMN why;
ALTER TABLE exclusions DROP COLUMN why;
