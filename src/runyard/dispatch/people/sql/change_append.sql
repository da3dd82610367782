-- The audit trail: who, when, from, to, why; in the same transaction as the change.
INSERT INTO tenant_changes (at, tenant, field, source, target, why, actor)
VALUES (runyard_now(), %(tenant)s, %(field)s, %(source)s, %(target)s, %(why)s, %(actor)s);
