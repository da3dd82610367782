-- How many objects are still to be deleted.
SELECT count(*) AS graves FROM blob_graves;
