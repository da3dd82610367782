-- The transitions that were there before reasons were codes, in batches: each is a transaction of a second or two.
-- `after` is the largest id of the batch before, so that no batch reads the rows that are converted already.
UPDATE transitions t SET reason = code.found ->> 'reason', detail = code.found -> 'detail'
FROM (
    SELECT id, runyard_reason_of(subject, target, why) AS found
    FROM transitions WHERE id > %(after)s AND reason IS NULL ORDER BY id LIMIT 10000
) AS code
WHERE t.id = code.id
RETURNING t.id;
