-- One slot as it is, whole, without a lock.
SELECT * FROM slots WHERE pod_uid = %(pod_uid)s;
