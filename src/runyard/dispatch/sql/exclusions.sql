-- The active exclusions, and the expired ones that no successful mint has ended yet.
SELECT kind, name, extract(epoch FROM until - runyard_now())::double precision AS left, reason, detail
FROM exclusions ORDER BY kind, name;
