-- Delete slots that were closed long ago, without a due fence or an intended job, oldest first.
DELETE FROM slots WHERE pod_uid IN (
    SELECT s.pod_uid FROM slots s
    WHERE s.state = 'closed' AND s.fence <> 'due' AND s.intended_job IS NULL
        AND s.closed_at < runyard_now() - make_interval(secs => %(older)s)
    ORDER BY s.closed_at, s.pod_uid LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
