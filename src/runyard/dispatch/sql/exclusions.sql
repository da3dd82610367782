-- Whom the matcher passes over, and whom it did until a success proves that it need not any more.
SELECT kind, name, extract(epoch FROM until - runyard_now())::double precision AS left, why
FROM exclusions ORDER BY kind, name;
