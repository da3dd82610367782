-- A slot whose row is lost.
DELETE FROM slots WHERE pod_uid = %(pod_uid)s;
