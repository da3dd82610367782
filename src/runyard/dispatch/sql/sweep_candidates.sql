-- Overdue slots, oldest deadline first, with what the machine needs to judge them: whether their own deadline has
-- passed, and whether their state's time has also passed since the service came back.
SELECT s.*, s.deadline <= runyard_now() AS overdue,
    greatest(s.deadline, v.served_since + make_interval(secs =>
        (%(stays)s::double precision[])[array_position(%(states)s::text[], s.state)])) <= runyard_now() AS settled
FROM slots s CROSS JOIN service v
WHERE (s.state <> 'closed' OR s.fence = 'due') AND s.deadline <= runyard_now()
ORDER BY s.deadline, s.pod_uid LIMIT %(limit)s;
