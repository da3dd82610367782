-- The rows that were there before reasons were codes. A file of its own: it takes the locks of these rows and no other, so
-- dispatch goes on meanwhile. Its triggers (0012) know the codes.
UPDATE transitions t SET reason = code.found ->> 'reason', detail = code.found -> 'detail'
FROM (SELECT id, runyard_reason_of(subject, target, why) AS found FROM transitions WHERE reason IS NULL) AS code
WHERE t.id = code.id;
UPDATE slots SET close_reason = close_reason WHERE close_reason ~ '[^a-z0-9-]';
UPDATE exclusions e SET reason = code.found ->> 'reason', detail = code.found -> 'detail'
FROM (
    SELECT kind, name, runyard_reason_of('slot', '', 'mint refused: ' || why) AS found
    FROM exclusions WHERE why <> '' AND reason = 'unknown'
) AS code
WHERE e.kind = code.kind AND e.name = code.name;
UPDATE tenant_changes SET target = target
WHERE (job_id IS NOT NULL AND target ~ '[^a-z0-9-]') OR field LIKE 'passed over %';
