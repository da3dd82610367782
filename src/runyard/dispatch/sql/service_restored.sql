-- An outage of somebody we depend on has ended: deadlines that passed meanwhile start anew.
UPDATE service SET served_since = runyard_now();
