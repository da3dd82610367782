-- Overdue slots in these states that may be asked, oldest deadline first: their own deadline has passed, and so has their
-- state's time since the service came back. Slots that must wait for the latter take nobody's turn.
-- Without a recent tick the service is only just coming back: nobody is asked before that is written down.
SELECT s.*,
    extract(epoch FROM runyard_now() - coalesce(s.claimed_at, s.opened_at))::double precision AS age,
    coalesce(t.installation_id, s.installation_id) AS installed_as,
    pg_postmaster_start_time()::text AS era
FROM slots s CROSS JOIN service v LEFT JOIN tenants t USING (tenant)
WHERE (s.state <> 'closed' OR s.fence = 'due') AND s.deadline <= runyard_now()
    AND s.state = ANY(%(states)s::text[])
    AND v.last_tick >= runyard_now() - make_interval(secs => %(outage)s)
    AND v.served_since + make_interval(secs =>
        (%(stays)s::double precision[])[array_position(%(states)s::text[], s.state)]) <= runyard_now()
ORDER BY s.deadline, s.pod_uid LIMIT %(limit)s;
