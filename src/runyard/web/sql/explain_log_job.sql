-- The last transition of a job.
SELECT extract(epoch FROM at)::double precision AS at, source, target, reason, detail, actor FROM transitions
WHERE job_id = %(job_id)s AND subject = 'job' ORDER BY id DESC LIMIT 1;
