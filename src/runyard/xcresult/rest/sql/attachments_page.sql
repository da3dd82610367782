-- Attachments of a run, in the order of cases; all of them, or those of one case.
SELECT attachment.attachment_id::text AS id, ran.case_id::text AS "case", attachment.shard, attachment.number,
    attachment.place, attachment.file_name, attachment.uniform_type, attachment.size, attachment.repetition_number,
    attachment.argument_name, payload.storage_key
FROM test_attachments AS attachment
JOIN test_payloads AS payload USING (payload_id)
JOIN test_case_runs AS ran USING (run_id, shard, number)
JOIN test_runs AS run USING (run_id, shard)
WHERE attachment.run_id = %(run_id)s::uuid
    AND %(account)s IN ('', run.account) AND %(project)s IN ('', run.project)
    AND (%(case)s::uuid IS NULL OR ran.case_id = %(case)s::uuid)
    AND (attachment.shard, attachment.number, attachment.place) > (%(shard)s, %(after)s, %(place)s)
ORDER BY attachment.shard, attachment.number, attachment.place LIMIT %(limit)s;
