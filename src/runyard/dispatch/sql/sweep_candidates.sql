-- Overdue slots in these states, oldest deadline first: the slot's deadline has passed, and the state's time since the
-- service came back. Slots that wait for the latter do not count towards the limit.
-- Without a recent tick the service has just come back, and no slot is swept before that is recorded.
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
