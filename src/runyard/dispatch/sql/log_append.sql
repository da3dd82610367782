-- The log: who, when, from, to, why; in the same transaction as the change.
INSERT INTO transitions (at, subject, pod_uid, job_id, source, target, why, actor)
VALUES (runyard_now(), %(subject)s, %(pod_uid)s::text, %(job_id)s::bigint, %(source)s, %(target)s, %(why)s, %(actor)s);
