-- The latest recoveries, with the time at which the stuck state began. Only the end of the log is read.
-- Not recoveries: a runner that ends when it is idle or draining, and a job that is requeued because GitHub gave its
-- runner another job. A job whose runner GitHub refused counts as recovered when it is no longer queued.
WITH recent AS (
    SELECT id, at, subject, pod_uid, source, target, reason, detail,
        coalesce(job_id, lag(job_id) OVER one) AS job_id, lag(at) OVER one AS before
    FROM transitions
    WHERE id > (SELECT coalesce(max(id), 0) FROM transitions) - %(window)s::bigint
    WINDOW one AS (PARTITION BY subject, coalesce(pod_uid, job_id::text) ORDER BY id)
)
SELECT r.id, r.subject, r.source, r.target, r.reason, r.detail, r.job_id,
    extract(epoch FROM r.at)::double precision AS at,
    extract(epoch FROM r.before)::double precision AS before,
    coalesce(s.pod_name, '') AS pod_name,
    coalesce(j.state, '') AS job_state, coalesce(j.conclusion, '') AS conclusion,
    r.at > runyard_now() - interval '1 hour' AS last_hour
FROM recent r
LEFT JOIN slots s ON s.pod_uid = r.pod_uid
LEFT JOIN jobs j ON j.job_id = r.job_id
WHERE (r.subject = 'slot' AND (
        r.reason = ANY(%(fenced)s::text[])
        OR r.reason = ANY(%(retired)s::text[])
        OR (r.target = 'closed' AND r.source IN ('offered', 'armed'))
        OR (r.target = 'closed' AND r.source = 'executing' AND coalesce(j.conclusion, '') <> 'success')
    ))
    OR (r.subject = 'job' AND r.source = 'bound' AND r.target = 'queued'
        AND r.reason <> ALL(%(ordinary)s::text[])
        AND (r.reason <> ALL(%(refused)s::text[]) OR j.state <> 'queued'))
ORDER BY r.id DESC LIMIT %(limit)s;
