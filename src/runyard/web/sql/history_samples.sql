-- The machine metrics of a job, oldest first.
SELECT extract(epoch FROM at)::double precision AS timestamp, cpu_usage_percent, cpu_iowait_percent,
    memory_used_bytes, memory_total_bytes, network_bytes_in, network_bytes_out, disk_used_bytes, disk_total_bytes
FROM samples WHERE job_id = %(job_id)s ORDER BY at LIMIT %(limit)s;
