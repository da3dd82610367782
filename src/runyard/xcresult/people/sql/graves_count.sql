-- How many are left.
SELECT count(*) AS graves FROM blob_graves;
