-- Jobs that wait, for a picture of the queue.
SELECT tenant, count(*) AS waiting FROM jobs WHERE state IN ('queued', 'bound') GROUP BY tenant ORDER BY tenant;
