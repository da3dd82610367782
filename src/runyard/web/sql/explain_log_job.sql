-- The last thing that the log says about a job itself.
SELECT extract(epoch FROM at)::double precision AS at, source, target, why, actor FROM transitions
WHERE job_id = %(job_id)s AND subject = 'job' ORDER BY id DESC LIMIT 1;
