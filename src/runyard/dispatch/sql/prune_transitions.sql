-- Delete the oldest log entries, unless they are about an open slot or an unfinished job.
DELETE FROM transitions WHERE id IN (
    SELECT t.id FROM transitions t
    WHERE t.at < runyard_now() - make_interval(secs => %(older)s)
        AND NOT EXISTS (SELECT FROM slots s WHERE s.pod_uid = t.pod_uid AND (s.state <> 'closed' OR s.fence = 'due'))
        AND NOT EXISTS (SELECT FROM jobs j WHERE j.job_id = t.job_id AND j.state <> 'done')
    ORDER BY t.at, t.id LIMIT %(limit)s FOR UPDATE SKIP LOCKED
);
