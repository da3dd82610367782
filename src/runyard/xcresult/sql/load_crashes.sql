-- Inserts crash reports, after the attachments: a report whose file could not be stored has no attachment.
INSERT INTO test_crashes (
    run_id, shard, number, crash, attachment_id, file_name, exception_type, exception_subtype, signal,
    triggered_thread_frames
)
SELECT %(run_id)s::uuid, %(shard)s, r.number, crash, there.attachment_id, r.file_name, exception_type, exception_subtype,
    signal, triggered_thread_frames
FROM json_to_recordset(%(rows)s::json) AS r (
    number integer, crash integer, attachment_id uuid, file_name text, exception_type text, exception_subtype text,
    signal text, triggered_thread_frames text
)
LEFT JOIN test_attachments AS there USING (attachment_id)
