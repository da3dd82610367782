-- Every slot whose Pod should exist.
SELECT pod_uid, pod_name, state, extract(epoch FROM runyard_now() - opened_at)::double precision AS age
FROM slots WHERE state <> 'closed' ORDER BY pod_uid;
