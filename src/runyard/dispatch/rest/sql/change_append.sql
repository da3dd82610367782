-- Append to the audit trail: actor, time, old and new value, reason. A change is recorded in its own transaction, a request
-- about a job after GitHub's answer.
INSERT INTO tenant_changes (at, tenant, job_id, field, source, target, why, actor, detail)
VALUES (runyard_now(), %(tenant)s, %(job)s::bigint, %(field)s, %(source)s, %(target)s, %(why)s, %(actor)s,
    %(detail)s::jsonb);
