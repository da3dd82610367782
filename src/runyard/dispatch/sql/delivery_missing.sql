-- Which of these deliveries have never been applied here.
SELECT guid FROM unnest(%(guids)s::text[]) AS asked (guid)
WHERE NOT EXISTS (SELECT FROM deliveries d WHERE d.guid = asked.guid) ORDER BY guid;
