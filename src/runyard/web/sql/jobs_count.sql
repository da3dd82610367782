-- Number of queued and running jobs, including those that are not shown.
SELECT count(*) FILTER (WHERE state = 'queued')::integer AS waiting,
    count(*) FILTER (WHERE state = 'running')::integer AS running
FROM jobs WHERE state IN ('queued', 'running');
