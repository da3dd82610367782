-- Crash reports of some cases of a run; a report whose file was deleted has no attachment.
SELECT crash.shard, crash.number, crash.file_name, crash.exception_type, crash.exception_subtype, crash.signal,
    crash.triggered_thread_frames, there.attachment_id::text AS attachment
FROM test_crashes AS crash LEFT JOIN test_attachments AS there USING (attachment_id)
WHERE crash.run_id = %(run_id)s::uuid
    AND (crash.shard, crash.number) IN (SELECT unnest(%(shards)s::integer[]), unnest(%(numbers)s::integer[]))
ORDER BY crash.shard, crash.number, crash.crash LIMIT %(limit)s;
