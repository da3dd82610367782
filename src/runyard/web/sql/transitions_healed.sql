-- What recovery did lately, with how long the runner had been stuck before. Only the end of the log is read.
-- An ending of a runner that was idle or draining is the ordinary one and no recovery; so is a job that is
-- given back because GitHub gave its runner another one. One whose runner GitHub refused is healed once it went on.
WITH recent AS (
    SELECT id, at, subject, pod_uid, source, target, why,
        coalesce(job_id, lag(job_id) OVER one) AS job_id, lag(at) OVER one AS before
    FROM transitions
    WHERE id > (SELECT coalesce(max(id), 0) FROM transitions) - %(window)s::bigint
    WINDOW one AS (PARTITION BY subject, coalesce(pod_uid, job_id::text) ORDER BY id)
)
SELECT r.id, r.subject, r.source, r.target, r.why, r.job_id,
    extract(epoch FROM r.at)::double precision AS at,
    extract(epoch FROM r.before)::double precision AS before,
    coalesce(s.pod_name, '') AS pod_name,
    coalesce(j.state, '') AS job_state, coalesce(j.conclusion, '') AS conclusion,
    r.at > runyard_now() - interval '1 hour' AS last_hour
FROM recent r
LEFT JOIN slots s ON s.pod_uid = r.pod_uid
LEFT JOIN jobs j ON j.job_id = r.job_id
WHERE (r.subject = 'slot' AND (
        r.why LIKE 'fence: %%'
        OR (r.target = 'draining' AND r.why IN ('stamped without a claim', 'does not ask for work'))
        OR (r.target = 'closed' AND r.source IN ('offered', 'armed'))
        OR (r.target = 'closed' AND r.source = 'executing' AND coalesce(j.conclusion, '') <> 'success')
    ))
    OR (r.subject = 'job' AND r.source = 'bound' AND r.target = 'queued'
        AND r.why NOT LIKE 'fence: %%' AND r.why NOT LIKE 'its runner got job %%'
        AND (r.why NOT LIKE 'mint refused%%' OR j.state <> 'queued'))
ORDER BY r.id DESC LIMIT %(limit)s;
