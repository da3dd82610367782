-- Store the samples of a machine for the job that it executes, one per second.
INSERT INTO samples (
    job_id, at, cpu_usage_percent, cpu_iowait_percent, memory_used_bytes, memory_total_bytes,
    network_bytes_in, network_bytes_out, disk_used_bytes, disk_total_bytes
)
SELECT %(job_id)s::bigint, to_timestamp(s.at), s.cpu, s.iowait, s.used, s.total, s.received, s.sent, s.disk_used, s.disk_total
FROM unnest(
    %(at)s::bigint[], %(cpu)s::real[], %(iowait)s::real[], %(used)s::bigint[], %(total)s::bigint[],
    %(received)s::bigint[], %(sent)s::bigint[], %(disk_used)s::bigint[], %(disk_total)s::bigint[]
) AS s (at, cpu, iowait, used, total, received, sent, disk_used, disk_total)
ON CONFLICT DO NOTHING;
