-- One slot, locked.
SELECT * FROM slots WHERE pod_uid = %(pod_uid)s FOR UPDATE;
