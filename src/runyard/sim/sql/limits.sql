-- Every budget.
SELECT tenant, platform, vcpus, memory_gb FROM tenant_limits ORDER BY tenant, platform;
