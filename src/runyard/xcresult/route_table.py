"""Describes every route for test results: parameters and responses, without its handler."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from runyard.http.messages import Response
from runyard.http.problems import Problem
from runyard.http.routes import Answers, Route
from runyard.wire import testruns as wire
from runyard.xcresult.rest.parameters import DAYS, LIMIT, MOST, MOST_DAYS, STATES, STATUSES

_SMALL = 64 << 10
_COMMON: Answers = {
    421: ("The Host header names another server.", Problem),
    503: ("The database or object storage is unavailable.", Problem),
}
_UNKNOWN: Answers = {404: ("It does not exist, or the caller may not see it.", Problem)}
_BAD: Answers = {400: ("A parameter is not valid.", Problem)}
_NARROW: Answers = {403: ("The token does not allow it.", Problem)}

Pairs = tuple[tuple[str, str], ...]
_PAGE: Pairs = (
    ("limit", f"number of items, 1 to {MOST}; default {LIMIT}"),
    ("cursor", "the `next` of the previous page"),
)
_PROJECT: Pairs = (("account", "a GitHub account"), ("project", "one of its repositories"))
_STATUS: Pairs = (("status", f"one of {', '.join(STATUSES)}"),)
_FLAKY: Pairs = (("flaky", "`true`: only flaky ones"),)
_BRANCH: Pairs = (("branch", "exact name of a branch"),)
_DAYS: Pairs = (("days", f"the last days to include, 1 to {MOST_DAYS}; default {DAYS}"),)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A route without its handler."""

    method: str
    path: str
    summary: str
    answers: Answers
    body: Any = None
    query: Pairs = ()


def described(
    handler: Callable[[Described], Callable[..., Awaitable[Response]]],
) -> tuple[Route, ...]:
    """The table, with the handler of each route."""
    return tuple(
        Route(
            each.method,
            each.path,
            handler(each),
            summary=each.summary,
            body=each.body,
            answers={**each.answers, **_COMMON},
            query=each.query,
            secured=True,
            limit=_SMALL,
        )
        for each in (*_UPLOADS, *_RUNS, *_TESTS, *_COVERAGE)
    )


def _get(path: str, summary: str, kind: Any, *, query: Pairs = ()) -> Described:
    answers = {200: ("Found.", kind), **_BAD, **_UNKNOWN}
    return Described(method="GET", path=path, summary=summary, answers=answers, query=query)


_UPLOADS = (
    Described(
        method="POST",
        path=wire.RUNS,
        summary="Announce a run, or one shard of it; returns where to upload its bundle.",
        body=wire.NewRun,
        answers={
            200: ("The run is known; `upload` is the link for its bundle.", wire.Accepted),
            409: ("The id belongs to another project.", Problem),
            **_NARROW,
        },
    ),
    Described(
        method="POST",
        path=wire.COMPLETE,
        summary="Process a complete upload. Repeating the request processes it once.",
        body=wire.Complete,
        answers={
            202: ("The run is queued, or its processing has begun.", wire.Accepted),
            409: ("Nothing was uploaded.", Problem),
            413: ("The upload is empty or too large.", Problem),
            **_NARROW,
            **_UNKNOWN,
        },
    ),
    Described(
        method="POST",
        path=wire.REPROCESS,
        summary="Process an upload again, for example with a newer release.",
        body=wire.Reprocess,
        answers={
            202: ("The run is queued or being processed.", wire.Accepted),
            409: ("The bundle is not uploaded yet.", Problem),
            410: ("The upload was deleted.", Problem),
            **_NARROW,
            **_UNKNOWN,
        },
    ),
    Described(
        method="POST",
        path=wire.TOKENS,
        summary="Make a token for the test results of one account or project; the server does not store it.",
        body=wire.NewToken,
        answers={201: ("The token, shown once.", wire.Token), **_NARROW},
    ),
)
_RUNS = (
    _get(
        wire.RUNS,
        "Runs, newest first, with their shards merged.",
        wire.TestRuns,
        query=(
            *_PROJECT,
            ("state", f"one of {', '.join(STATES)}"),
            *_STATUS,
            *_FLAKY,
            *_BRANCH,
            ("commit", "full SHA of a commit"),
            ("scheme", "exact name of a scheme or test plan"),
            ("ci_run", "the CI's id of the run"),
            *_PAGE,
        ),
    ),
    _get(wire.RUN, "One run, with its shards merged.", wire.RunDetail),
    _get(wire.MODULES, "Modules of a run.", wire.Modules, query=_PAGE),
    _get(
        wire.SUITES,
        "Suites of a run.",
        wire.Suites,
        query=(("module", "only suites of this module"), *_PAGE),
    ),
    _get(
        wire.CASES,
        "Cases of a run, with the first failures of each.",
        wire.CaseRuns,
        query=(
            *_STATUS,
            *_FLAKY,
            ("module", "exact name of a module"),
            ("suite", "exact name of a suite"),
            ("name", "part of the name"),
            *_PAGE,
        ),
    ),
    _get(
        wire.CASE_OF_RUN,
        "One case of a run: failures, arguments, repetitions, attachments, crashes.",
        wire.CaseDetail,
    ),
    _get(
        wire.ATTACHMENTS,
        "Attachments of a run's tests, with links to them.",
        wire.Attachments,
        query=(("case", "only attachments of this case"), *_PAGE),
    ),
)
_TESTS = (
    _get(
        wire.TESTS,
        "Tests of a project.",
        wire.Tests,
        query=(
            *_PROJECT,
            ("module", "exact name of a module"),
            ("suite", "exact name of a suite"),
            ("name", "part of the name"),
            *_PAGE,
        ),
    ),
    _get(wire.TEST, "One test, with its recent figures.", wire.TestDetail, query=_DAYS),
    _get(
        wire.HISTORY,
        "Results of a test, newest first.",
        wire.History,
        query=(*_BRANCH, *_STATUS, *_PAGE),
    ),
    _get(
        wire.FLAKY,
        "Tests that both failed and succeeded in one run, or on one commit; the most flaky first.",
        wire.FlakyTests,
        query=(*_PROJECT, *_BRANCH, *_DAYS, _PAGE[0]),
    ),
    _get(wire.ATTACHMENT, "One attachment, with a link to it.", wire.Attachment),
)
_COVERAGE = (
    _get(wire.COVERAGE, "Code coverage of a run.", wire.Coverage),
    _get(
        wire.COVERAGE_FILES,
        "Files of a run's coverage.",
        wire.CoverageFiles,
        query=(("target", "only files of this target"), *_PAGE),
    ),
    _get(
        wire.COVERAGE_LINES,
        "Execution counts of the lines of a file.",
        wire.CoverageLines,
        query=(("target", "the file's target"), ("path", "the file's path")),
    ),
)
