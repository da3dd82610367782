-- Deletes attachments of runs that ended long ago; the runs stay, and payloads while another attachment refers to them.
WITH old AS (
    SELECT attachment.attachment_id
    FROM test_runs AS run JOIN test_attachments AS attachment USING (run_id, shard)
    WHERE run.created_at < runyard_now() - make_interval(secs => %(older)s)
        AND run.state IN ('processed', 'failed_processing')
    ORDER BY run.created_at, run.run_id, run.shard, attachment.number, attachment.place
    LIMIT %(limit)s FOR UPDATE OF attachment SKIP LOCKED
), gone AS (
    DELETE FROM test_attachments AS attachment USING old
    WHERE attachment.attachment_id = old.attachment_id
    RETURNING attachment.attachment_id
)
SELECT count(*) AS gone FROM gone;
