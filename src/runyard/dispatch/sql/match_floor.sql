-- Where in virtual time the tenant began that was served last.
SELECT coalesce(max(vstart), 0) AS floor FROM tenants;
