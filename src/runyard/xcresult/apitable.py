"""What can be asked about test results, described: each route with its parameters and answers, without its handler."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from runyard.http.messages import Response
from runyard.http.problems import Problem
from runyard.http.routes import Answers, Route
from runyard.wire import testruns as wire
from runyard.xcresult.people.asking import DAYS, LIMIT, MOST, MOST_DAYS, STATES, STATUSES

_SMALL = 64 << 10
_COMMON: Answers = {
    421: ("The server does not go by that name.", Problem),
    503: ("The database or object storage cannot be used.", Problem),
}
_UNKNOWN: Answers = {404: ("There is none, or none that the caller may know of.", Problem)}
_BAD: Answers = {400: ("A parameter makes no sense.", Problem)}
_NARROW: Answers = {403: ("The token does not allow it.", Problem)}

Pairs = tuple[tuple[str, str], ...]
_PAGE: Pairs = (
    ("limit", f"at most so many, 1 to {MOST}; {LIMIT} if nothing is said"),
    ("cursor", "the `next` of the page before"),
)
_PROJECT: Pairs = (("account", "an account at GitHub"), ("project", "a repository of it"))
_STATUS: Pairs = (("status", f"one of {', '.join(STATUSES)}"),)
_FLAKY: Pairs = (("flaky", "`true`: only what was flaky"),)
_BRANCH: Pairs = (("branch", "a branch, whole"),)
_DAYS: Pairs = (("days", f"how far back, 1 to {MOST_DAYS}; {DAYS} if nothing is said"),)


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """A route, but for its handler."""

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
    answers = {200: ("Here it is.", kind), **_BAD, **_UNKNOWN}
    return Described(method="GET", path=path, summary=summary, answers=answers, query=query)


_UPLOADS = (
    Described(
        method="POST",
        path=wire.RUNS,
        summary="Announce a run, or one shard of it, and learn where its bundle is uploaded to.",
        body=wire.NewRun,
        answers={
            200: ("It is known; `upload` says where to.", wire.Accepted),
            409: ("The id is another project's.", Problem),
            **_NARROW,
        },
    ),
    Described(
        method="POST",
        path=wire.COMPLETE,
        summary="The upload is whole: process it. Said twice, it is processed once.",
        body=wire.Complete,
        answers={
            202: ("It is queued, or further.", wire.Accepted),
            409: ("Nothing was uploaded.", Problem),
            413: ("The upload is empty or too large.", Problem),
            **_NARROW,
            **_UNKNOWN,
        },
    ),
    Described(
        method="POST",
        path=wire.REPROCESS,
        summary="Read an upload once more, for instance by a newer release.",
        body=wire.Reprocess,
        answers={
            202: ("It is queued, or being processed.", wire.Accepted),
            409: ("It was not uploaded yet.", Problem),
            410: ("The upload was removed.", Problem),
            **_NARROW,
            **_UNKNOWN,
        },
    ),
    Described(
        method="POST",
        path=wire.TOKENS,
        summary="Make a token for one account's test results, or for one project's; the server does not keep it.",
        body=wire.NewToken,
        answers={201: ("The token, shown once.", wire.Token), **_NARROW},
    ),
)
_RUNS = (
    _get(
        wire.RUNS,
        "Runs, newest first, their shards merged.",
        wire.TestRuns,
        query=(
            *_PROJECT,
            ("state", f"one of {', '.join(STATES)}"),
            *_STATUS,
            *_FLAKY,
            *_BRANCH,
            ("commit", "a commit, whole"),
            ("scheme", "a scheme or test plan, whole"),
            ("ci_run", "what the CI calls its run"),
            *_PAGE,
        ),
    ),
    _get(wire.RUN, "One run, its shards merged.", wire.RunDetail),
    _get(wire.MODULES, "Its modules.", wire.Modules, query=_PAGE),
    _get(wire.SUITES, "Its suites.", wire.Suites, query=(("module", "of this one"), *_PAGE)),
    _get(
        wire.CASES,
        "Its cases, with the first failures of each.",
        wire.CaseRuns,
        query=(
            *_STATUS,
            *_FLAKY,
            ("module", "a module, whole"),
            ("suite", "a suite, whole"),
            ("name", "a part of the name"),
            *_PAGE,
        ),
    ),
    _get(
        wire.CASE_OF_RUN,
        "One case of it: failures, arguments, repetitions, attachments, crashes.",
        wire.CaseDetail,
    ),
    _get(
        wire.ATTACHMENTS,
        "Files that its tests left, with links to them.",
        wire.Attachments,
        query=(("case", "of this one"), *_PAGE),
    ),
)
_TESTS = (
    _get(
        wire.TESTS,
        "Tests of a project.",
        wire.Tests,
        query=(
            *_PROJECT,
            ("module", "a module, whole"),
            ("suite", "a suite, whole"),
            ("name", "a part of the name"),
            *_PAGE,
        ),
    ),
    _get(wire.TEST, "One test, and how it did lately.", wire.TestDetail, query=_DAYS),
    _get(
        wire.HISTORY,
        "What became of a test, newest first.",
        wire.History,
        query=(*_BRANCH, *_STATUS, *_PAGE),
    ),
    _get(
        wire.FLAKY,
        "Tests that both failed and succeeded in one run, or on one commit; the flakiest first.",
        wire.FlakyTests,
        query=(*_PROJECT, *_BRANCH, *_DAYS, _PAGE[0]),
    ),
    _get(wire.ATTACHMENT, "A link to a file that a test left.", wire.Attachment),
)
_COVERAGE = (
    _get(wire.COVERAGE, "Code coverage of a run.", wire.Coverage),
    _get(
        wire.COVERAGE_FILES,
        "Its files.",
        wire.CoverageFiles,
        query=(("target", "of this one"), *_PAGE),
    ),
    _get(
        wire.COVERAGE_LINES,
        "How often each line of a file ran.",
        wire.CoverageLines,
        query=(("target", "the file's target"), ("path", "the file's path")),
    ),
)
