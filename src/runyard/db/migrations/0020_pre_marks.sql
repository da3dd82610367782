-- What the labels of a Pod say: the job that they were written for last, its account's number (0: none), and whether they
-- mark the Pod as untrusted.
ALTER TABLE slots ADD COLUMN marked_job bigint;
ALTER TABLE slots ADD COLUMN marked_account bigint NOT NULL DEFAULT 0;
ALTER TABLE slots ADD COLUMN marked_untrusted boolean NOT NULL DEFAULT false;
