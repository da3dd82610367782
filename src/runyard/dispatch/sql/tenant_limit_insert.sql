-- The limit that a new tenant starts with.
INSERT INTO tenant_limits (tenant, platform, vcpus, memory_gb)
VALUES (%(tenant)s, %(platform)s, %(vcpus)s, %(memory_gb)s) ON CONFLICT DO NOTHING;
