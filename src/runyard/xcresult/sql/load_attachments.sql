-- Inserts attachments, except those whose payload could not be stored.
INSERT INTO test_attachments (
    attachment_id, run_id, shard, number, place, payload_id, file_name, uniform_type, size, repetition_number,
    argument_name
)
SELECT attachment_id, %(run_id)s::uuid, %(shard)s, number, place, payload_id, file_name, uniform_type, size,
    repetition_number, argument_name
FROM json_to_recordset(%(rows)s::json) AS r (
    attachment_id uuid, number integer, place integer, payload_id uuid, file_name text, uniform_type text,
    size bigint, repetition_number integer, argument_name text
)
WHERE NOT payload_id = ANY(%(dropped)s::uuid[])
