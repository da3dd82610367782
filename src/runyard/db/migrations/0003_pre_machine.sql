-- Which machine this database belongs to, if it belongs to one: a machine that runs everything by itself takes
-- a database for itself alone. Servers of a cluster share one, and never write here.
CREATE TABLE machine (
    only_one boolean PRIMARY KEY DEFAULT true CHECK (only_one),
    id text NOT NULL,
    place text NOT NULL, -- where its state lies, for people
    since timestamptz NOT NULL DEFAULT runyard_now()
);
