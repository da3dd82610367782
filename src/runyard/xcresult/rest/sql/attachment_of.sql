-- One attachment.
SELECT attachment.attachment_id::text AS id, ran.case_id::text AS "case", attachment.file_name,
    attachment.uniform_type, attachment.size, attachment.repetition_number, attachment.argument_name,
    payload.storage_key
FROM test_attachments AS attachment
JOIN test_payloads AS payload USING (payload_id)
JOIN test_case_runs AS ran USING (run_id, shard, number)
JOIN test_runs AS run USING (run_id, shard)
WHERE attachment.attachment_id = %(attachment)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project);
