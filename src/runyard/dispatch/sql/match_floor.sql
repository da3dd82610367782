-- Where the tenants that hold runners now are in virtual time.
SELECT coalesce(min(t.vtime), 0) AS floor FROM tenants t
WHERE EXISTS (
    SELECT FROM slots s WHERE s.tenant = t.tenant AND s.state IN ('offered', 'armed', 'executing', 'draining')
);
