-- Delete entries of deliveries that GitHub does not store any more: it keeps them for three days.
DELETE FROM redeliveries WHERE asked_at < runyard_now() - interval '4 days';
