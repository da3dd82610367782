-- What waits: for each tenant and set of labels how many jobs, the oldest of them, and the oldest that may be offered.
SELECT tenant, labels, count(*)::integer AS jobs,
    extract(epoch FROM runyard_now() - min(enqueued_at))::double precision AS oldest,
    coalesce(extract(epoch FROM runyard_now() - min(enqueued_at) FILTER (WHERE verified)), 0)::double precision AS offerable
FROM jobs WHERE state = 'queued' GROUP BY tenant, labels ORDER BY tenant, labels;
