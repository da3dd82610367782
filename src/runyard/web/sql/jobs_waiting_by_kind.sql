-- Number of waiting jobs of each repository and set of labels, the largest first: the same holds all of them.
SELECT j.tenant, j.repository, j.labels, j.state, j.verified, count(*)::integer AS jobs
FROM (
    SELECT tenant, repository, labels, state, verified FROM jobs
    WHERE state IN ('waiting', 'queued') ORDER BY look_at, job_id LIMIT %(limit)s
) j
GROUP BY j.tenant, j.repository, j.labels, j.state, j.verified
ORDER BY jobs DESC, j.tenant, j.repository, j.labels, j.state, j.verified;
