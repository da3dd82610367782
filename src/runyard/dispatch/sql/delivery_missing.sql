-- Which of these deliveries were never applied. Where `most` is not 0: without those that failed so often, or recently.
SELECT guid FROM unnest(%(guids)s::text[]) AS asked (guid)
WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.guid = asked.guid)
  AND (%(most)s::integer = 0 OR NOT EXISTS (
    SELECT FROM redeliveries r WHERE r.guid = asked.guid
      AND (r.asked >= %(most)s::integer
        OR r.asked_at > runyard_now() - r.asked * %(pause)s::double precision * interval '1 second')
  ))
ORDER BY guid;
