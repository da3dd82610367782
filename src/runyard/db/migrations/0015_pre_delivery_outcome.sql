-- An event that cannot be applied is stored as `invalid`. Deliveries are kept for seven days, and few have this outcome.
UPDATE deliveries SET outcome = 'invalid' WHERE outcome = 'nonsense';
