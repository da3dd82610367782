-- The newest slot with this name: a Pod's uid or name, a runner's name or its id at GitHub, or the id of the assigned
-- job. `tenant` limits the search if it is known. Includes the conditions that the sweeper checks.
SELECT s.*, j.trust AS job_trust,
    extract(epoch FROM s.opened_at)::double precision AS opened_epoch,
    extract(epoch FROM s.last_beat)::double precision AS beat_epoch,
    s.dropped_beat IS NOT DISTINCT FROM s.last_beat AS poll_dropped,
    extract(epoch FROM s.deadline)::double precision AS deadline_epoch,
    s.deadline <= runyard_now() AS overdue,
    coalesce(v.settles_at <= runyard_now() AND v.last_tick >= runyard_now() - make_interval(secs => %(outage)s), true)
        AS settled,
    coalesce(extract(epoch FROM v.settles_at), 0)::double precision AS settles_epoch
FROM slots s LEFT JOIN LATERAL (
    SELECT last_tick, served_since + make_interval(secs =>
        (%(stays)s::double precision[])[array_position(%(states)s::text[], s.state)]) AS settles_at
    FROM service
) v ON true LEFT JOIN jobs j ON j.job_id = coalesce(s.executing_job, s.intended_job)
WHERE s.pod_uid IN (
    SELECT pod_uid FROM slots WHERE pod_uid = %(name)s::text
    UNION ALL
    SELECT pod_uid FROM slots WHERE pod_name = %(name)s::text
    UNION ALL
    SELECT o.pod_uid FROM tenants t JOIN slots o ON o.tenant = t.tenant
        AND o.runner_name <> '' AND o.runner_name = %(runner)s::text
        AND (%(tenant)s::text IS NULL OR o.tenant = %(tenant)s::text)
    UNION ALL
    SELECT pod_uid FROM slots WHERE runner_id = %(runner_id)s::bigint AND (state <> 'closed' OR fence = 'due')
    UNION ALL
    SELECT pod_uid FROM slots WHERE intended_job = %(job_id)s::bigint
)
ORDER BY s.opened_at DESC, s.pod_uid LIMIT 1;
