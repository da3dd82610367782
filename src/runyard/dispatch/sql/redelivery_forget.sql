-- GitHub keeps deliveries for three days; what was asked before that is of no use.
DELETE FROM redeliveries WHERE asked_at < runyard_now() - interval '4 days';
