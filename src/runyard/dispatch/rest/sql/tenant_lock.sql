-- One tenant, locked: the first lock of every transaction that concerns one.
SELECT tenant, weight, paused FROM tenants WHERE tenant = %(tenant)s FOR UPDATE;
