-- Runs whose upload was not completed, and whether they are to be given up.
SELECT run_id::text AS run_id, shard, storage_key, (extract(epoch FROM created_at) * 1000000)::bigint AS micros,
    created_at < runyard_now() - make_interval(secs => %(older)s) AS over
FROM test_runs
WHERE state = 'awaiting_upload' AND created_at < runyard_now() - make_interval(secs => %(adopt)s)
    AND (created_at, run_id, shard) > (
        'epoch'::timestamptz + %(micros)s * interval '1 microsecond', %(after)s::uuid, %(after_shard)s
    )
ORDER BY created_at, run_id, shard LIMIT %(limit)s;
