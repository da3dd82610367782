-- Whether the code of a job is trusted (a reason code; empty: not decided), and the account's number at GitHub (0: not known).
ALTER TABLE jobs ADD COLUMN trust text NOT NULL DEFAULT '';
ALTER TABLE tenants ADD COLUMN account_id bigint NOT NULL DEFAULT 0;
