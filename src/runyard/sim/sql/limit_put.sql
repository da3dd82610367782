-- A tenant's budget.
INSERT INTO tenant_limits (tenant, platform, vcpus, memory_gb)
VALUES (%(tenant)s, %(platform)s, %(vcpus)s, %(memory_gb)s);
