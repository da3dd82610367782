-- What all replicas share towards GitHub: one budget, whose turn a task is, and how far the audit has come.
-- A budget is one installation's (or the App's own): points of the minute, the hour as GitHub tells it, and
-- until when GitHub said to wait.
CREATE TABLE github_budgets (
    key text PRIMARY KEY,
    level double precision NOT NULL, -- points, as of `at`; they refill with time
    at timestamptz NOT NULL,
    open_at timestamptz NOT NULL, -- nothing before
    hour_limit bigint,
    hour_left bigint,
    hour_ends timestamptz
) WITH (fillfactor = 50); -- small and written with every call: its rows stay where they are

CREATE TABLE turns (
    what text PRIMARY KEY,
    holder text NOT NULL,
    until timestamptz NOT NULL
);

-- A stretch of GitHub's log of deliveries that has not been compared yet, newest end first.
CREATE TABLE delivery_gaps (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    since timestamptz NOT NULL, -- compared up to here, from the past
    until timestamptz NOT NULL, -- and from here on
    page text NOT NULL DEFAULT '' -- GitHub's cursor of the next page to read; empty: the newest
);

-- Deliveries that GitHub was asked to send again, so that it is not asked for ever.
CREATE TABLE redeliveries (
    guid text PRIMARY KEY,
    asked integer NOT NULL,
    asked_at timestamptz NOT NULL
);
