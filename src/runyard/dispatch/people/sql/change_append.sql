-- The audit trail: who, when, from, to, why; a change in its own transaction, a question about a job after GitHub's answer.
INSERT INTO tenant_changes (at, tenant, job_id, field, source, target, why, actor)
VALUES (runyard_now(), %(tenant)s, %(job)s::bigint, %(field)s, %(source)s, %(target)s, %(why)s, %(actor)s);
