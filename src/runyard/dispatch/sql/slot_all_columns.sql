-- All columns of one slot, without a lock.
SELECT * FROM slots WHERE pod_uid = %(pod_uid)s;
