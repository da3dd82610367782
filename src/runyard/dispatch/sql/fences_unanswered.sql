-- Tenants whose runners should have been deleted at GitHub so long ago, with the number of them and the longest time.
SELECT s.tenant, count(*) AS fences,
    extract(epoch FROM runyard_now() - min(coalesce(s.closed_at, s.claimed_at)))::double precision AS age
FROM slots s
WHERE (s.state <> 'closed' OR s.fence = 'due') AND s.state IN ('offered', 'armed', 'closed')
    AND coalesce(s.closed_at, s.claimed_at) <= runyard_now() - make_interval(secs => %(older)s::double precision)
GROUP BY s.tenant ORDER BY s.tenant LIMIT 10;
