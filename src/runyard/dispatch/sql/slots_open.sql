-- Every slot whose Pod should exist.
SELECT pod_uid, pod_name, state FROM slots WHERE state <> 'closed' ORDER BY pod_uid;
