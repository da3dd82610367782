-- Write a tenant's limit on one platform.
INSERT INTO tenant_limits (tenant, platform, vcpus, memory_gb)
VALUES (%(tenant)s, %(platform)s, %(vcpus)s, %(memory_gb)s)
ON CONFLICT (tenant, platform) DO UPDATE SET vcpus = excluded.vcpus, memory_gb = excluded.memory_gb;
