"""No program matches a sentence, and the law notices when one does."""

import functools
from pathlib import Path

import lawbook_reasons
import lawtree
import pytest
from lawbook_reason_fields import compared_fields, compared_fields_in_sql
from lawbook_reasons import matched_sentences, matched_sentences_in_sql

# Files that read texts which another program writes and which are its interface, and whose words those are.
FOREIGN = {
    "src/runyard/xcresult/reader/": "Xcode's",
    "src/runyard/xcresult/formats/": "Xcode's",
    "src/runyard/xcresult/archives/": "Apple Archive's",
    "src/runyard/xcresult/cache/": "Xcode's",
    "src/runyard/embedded/kube/access/certificates.py": "Kubernetes': the usages of a certificate",
    "src/runyard/embedded/kube/rules/certificates.py": "Kubernetes': the usages of a certificate",
    "src/runyard/embedded/kube/validation.py": "msgspec's: an error has no other mark of its field",
    "src/runyard/embedded/postgres/server.py": "PostgreSQL's",
    "src/runyard/hosts/doctor/plans/": "those of macOS, tart and the programs of a Linux host",
    "src/runyard/http/expectations.py": "msgspec's: an error has no other mark of its field",
    "src/runyard/wire/bodies.py": "the pollers': the reasons of a 410 are theirs",
    "src/runyard/github/answers.py": "GitHub's: a secondary rate limit may have no other mark",
    "tests/conformance/kube/": "kube-apiserver's",
    "tests/embedded/kube/": "kube-apiserver's, which the embedded API repeats exactly",
    "tests/embedded/kube_access/": "kube-apiserver's, which the embedded API repeats exactly",
    "tests/embedded/kube_http/": "kube-apiserver's and kubectl's",
    "tests/xcresult/cache/": "Xcode's: what a test recorded",
    "tests/xcresult/formats/": "Xcode's: what a test recorded, in the formats of other tools",
    "tests/xcresult/goldens/": "Xcode's: what a test recorded",
    "tests/xcresult/reader/": "Xcode's: what a test recorded",
}
# Migrations convert the sentences that earlier releases stored into codes.
CONVERTS = "/migrations/"
# Tests of how something is rendered: the code is compared before, and what is left to test are the names and numbers.
RENDERING = {
    "tests/components/test_components_reporting.py": {
        "test_a_missing_permission_is_reported_until_that_request_is_allowed": (
            "the message of the condition names the refused request"
        ),
    },
    "tests/dispatch/test_dispatch_budget.py": {
        "test_a_low_budget_is_a_health_condition_before_jobs_wait": (
            "the message of the condition names each installation"
        ),
    },
    "tests/embedded/up/test_up_rights.py": {
        "test_a_server_that_may_not_stamp_reports_it_and_dispatches_once_it_may": (
            "the message of the condition names the refused request"
        ),
    },
    "tests/kube/test_kube_connect.py": {
        "test_an_unusable_key_is_reported_at_once": "the fix names the pass phrase",
    },
    "tests/node/test_node_agent.py": {
        "test_an_environment_that_cannot_be_resolved_is_named_in_the_status": (
            "the status names the variable"
        ),
        "test_a_host_that_lost_power_fails_its_pods_and_runs_none_twice": (
            "the status names the cause"
        ),
    },
    "tests/node/test_node_images.py": {
        "test_a_driver_that_never_ends_a_pull_is_given_up": "the text names the deadline and how far it was",
    },
    "tests/node/test_node_pins.py": {
        "test_a_registry_that_never_answers_leaves_a_text_in_the_failure": "the text names what took too long",
    },
    "tests/node/test_node_waiting.py": {
        "test_a_clone_that_never_ends_leaves_a_text_in_the_status": "the text names what took too long",
    },
    "tests/node/test_node_plan_node.py": {
        "test_disk_pressure_follows_the_measured_percentage": "the message of the condition names the VM",
    },
    "tests/web/explain/test_explain_api.py": {
        "test_a_kind_that_cannot_be_explained_names_those_that_can": "the fix names the kinds",
    },
    "tests/web/test_web_dashboard.py": {
        "test_a_hanging_kubernetes_delays_no_request": "what the page shows beside the state",
    },
    "tests/web/test_web_page.py": {
        "test_the_login_form_shows_no_data": "a page",
    },
    "tests/web/test_web_overview.py": {
        "test_without_kubernetes_jobs_are_shown_without_a_wrong_reason": (
            "the cause is shown beside the reason of the job"
        ),
    },
    "tests/xcresult/bundle/test_verifying.py": {
        "test_a_frame_that_was_cut_short_is_found_also_under_its_right_name": (
            "the message quotes the decoder"
        ),
    },
    "tests/xcresult/hostile/test_hostile_bundles.py": {
        "test_a_summary_that_is_a_bomb_is_passed_over": "the warning names the limit",
        "test_absurdly_deep_activities_cost_their_case_the_details": "the warning names the limit",
        "test_unknown_types_are_warned_of_and_known_supertypes_are_read": "the warning names the type",
    },
    "tests/xcresult/processor/test_processor_outages.py": {
        "test_a_fleet_that_cannot_reach_the_database_is_seen_and_then_drains_with_no_attempt_lost": (
            "the message of the condition has the count"
        ),
    },
}


def ours(paths: list[Path]) -> list[Path]:
    """Files whose texts are this project's own."""
    names = {path: path.relative_to(lawtree.ROOT).as_posix() for path in paths}
    others = tuple(FOREIGN)
    return [
        path for path in paths if not names[path].startswith(others) and CONVERTS not in names[path]
    ]


@functools.cache
def known_constants() -> dict[str, frozenset[str]]:
    """For each module of the package, its constants that hold a sentence."""
    root = lawtree.ROOT / "src"
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): lawbook_reasons.sentence_constants(
            path.read_text(encoding="utf-8")
        )
        for path in lawtree.python("src")
    }


def test_no_code_matches_a_sentence() -> None:
    paths = ours(lawtree.python("src"))
    assert len(paths) > 300
    law = functools.partial(matched_sentences, known=known_constants())
    assert lawtree.break_law(law, paths) == []


def test_no_statement_matches_a_sentence() -> None:
    assert lawtree.break_law(matched_sentences_in_sql, ours(lawtree.sql())) == []


def test_no_code_compares_a_field_for_people() -> None:
    assert lawtree.break_law(compared_fields, ours(lawtree.python("src", "tools"))) == []


def test_no_statement_compares_a_field_for_people() -> None:
    assert lawtree.break_law(compared_fields_in_sql, ours(lawtree.sql())) == []


def test_no_test_compares_a_field_for_people() -> None:
    paths = ours(lawtree.python("tests", "benches"))
    assert len(paths) > 300
    found: list[str] = []
    for path in paths:
        name = path.relative_to(lawtree.ROOT).as_posix()
        law = functools.partial(compared_fields, rendering=RENDERING.get(name, {}))
        found += lawtree.break_law(law, [path])
    assert found == []


def test_every_exception_is_needed() -> None:
    found = dict.fromkeys(FOREIGN, 0)
    for path in (*lawtree.python("src", "tests"), *lawtree.sql()):
        name, text = path.relative_to(lawtree.ROOT).as_posix(), path.read_text("utf-8")
        for prefix in found:
            if name.startswith(prefix):
                found[prefix] += len(breaches(name, text))
    assert [prefix for prefix, count in found.items() if not count] == [], "remove these"


def breaches(name: str, text: str) -> list[str]:
    """What one file does against the laws that are meant for it."""
    if name.endswith(".sql"):
        return matched_sentences_in_sql(text)
    if name.startswith("tests/"):
        return compared_fields(text)
    return matched_sentences(text, known_constants())


def test_every_test_of_rendering_compares_a_field_for_people() -> None:
    needless: list[str] = []
    for name, functions in RENDERING.items():
        text = (lawtree.ROOT / name).read_text("utf-8")
        needless += [
            f"{name}: {function}"
            for function in functions
            if len(compared_fields(text, functions.keys() - {function}))
            == len(compared_fields(text, functions))
        ]
    assert needless == [], "remove these"


BAD_PYTHON = {
    "equal": 'if change.why == "its runner executes another job": pass',
    "not equal": 'if "mint failed" != told: pass',
    "one of": 'if why in ("fence: busy", "x"): pass',
    "part of": 'if "not asked" in str(error): pass',
    "prefix": 'why.startswith("fence: deleted")',
    "prefixes": 'why.startswith(("a", "its runner got"))',
    "suffix": 'why.endswith("got job")',
    "formatted": 'if why == f"its runner got job {number}": pass',
    "searched": 'why.find("does not ask")',
    "pattern": 'import re\nre.compile("mint refused by .*")',
    "match": 'match why:\n    case "queued again":\n        pass',
    "constant": 'GONE = "the Pod is gone"\nif why == GONE: pass',
    "imported": "from runyard.proofs import ANOTHER\nif why == ANOTHER: pass",
    "formatted around a value": 'if why == f"job {number} ended": pass',
    "part of a constant": 'GONE = "the Pod is gone"\nif GONE in str(error): pass',
    "one of a constant": 'KNOWN = frozenset({"the Pod is gone"})\nif said in KNOWN: pass',
    "key of a constant": 'KNOWN = {"the Pod is gone": 1}\nKNOWN[said]',
    "looked up in a constant": 'KNOWN = {"the Pod is gone": 1}\nKNOWN.get(said)',
    "key of a literal": '{"the Pod is gone": 1}[said]',
    "attribute of a class": 'class A:\n    GONE = "it is gone"\nif said == A.GONE: pass',
    "constant of a module": "from runyard import proofs\nif said == proofs.ANOTHER: pass",
    "constant of an imported module": "import runyard.proofs as p\nif said == p.ANOTHER: pass",
    "imported dict": "from runyard.proofs import KNOWN as k\nk[said]",
    "pattern by another name": 'import re as regex\nregex.compile("mint refused by .*")',
    "pattern by its own name": 'from re import compile as c\nc("mint refused by .*")',
    "replaced": 'import re\nre.sub("mint refused by .*", "", said)',
    "enum": 'from enum import StrEnum\nclass Q(StrEnum):\n    LOOK = "look at the Pod"',
}
GOOD_PYTHON = {
    "slug": 'if reason.slug == "fence-busy": pass',
    "code": "if reason.code is Why.FENCE_BUSY: pass",
    "shown": 'log.warning("slot not asked", why="mint failed")',
    "raised": 'raise ValueError(f"the loop {loop} was not announced")',
    "template": 'class Why(Code):\n    A = "fence-busy", "the fence found it busy"',
    "header": 'if line.startswith("Bearer "): pass',
    "PEM": 'if "-----BEGIN PRIVATE KEY-----" in text: pass',
    "separator": 'a, _, b = text.partition(", ")',
    "formatted header": 'if line == f"Bearer {token}": pass',
    "table of texts": 'TEXTS = {"gone": "it is gone"}\nshow(TEXTS[code])',
    "list of texts": 'TEXTS = ["it is gone"]\nshow(TEXTS[0])',
    "identity": "TOLD = 'it is gone'\nif why is TOLD: pass",
}
BAD_SQL = {
    "like": "SELECT 1 FROM t WHERE why LIKE 'fence: %%'",
    "ilike": "SELECT 1 FROM t WHERE why NOT ILIKE 'mint refused%%'",
    "equal": "SELECT 1 FROM t WHERE why = 'does not ask for work'",
    "unequal": "SELECT 1 FROM t WHERE why <> 'queued again'",
    "in": "SELECT 1 FROM t WHERE why IN ('x', 'queued again')",
    "case": "SELECT CASE why WHEN 'queued again' THEN 1 END FROM t",
    "pattern": "SELECT 1 FROM t WHERE why ~ '^its runner'",
    "function": "SELECT 1 FROM t WHERE starts_with(why, 'its runner got')",
}
GOOD_SQL = {
    "slug": "SELECT 1 FROM t WHERE reason = 'queued-again' OR reason LIKE 'fence-%%'",
    "comment": "-- why = 'queued again'\nSELECT 1",
    "written": "UPDATE t SET note = 'queued again' WHERE reason = 'x'",
    "cast": "SELECT '1 day'::interval, now() - interval '30 days'",
    "named argument": "SELECT make_interval(secs => 5)",
}


BAD_FIELDS = {
    "variable": 'if why == "beat": pass',
    "attribute": 'if change.why == "beat": pass',
    "key": 'if body["message"] != "gone": pass',
    "optional key": 'if "gone" in body.get("text", ""): pass',
    "formatted": 'if report.message == f"403 to {path}": pass',
    "one of": 'if change.why in {"beat", "ended"}: pass',
    "in a pair": 'assert (answer.status, body["message"]) == (401, "gone")',
    "prefix": 'change.text.startswith("fence")',
    "lower case": 'if "fence" in change.text.lower(): pass',
    "match": 'match row["why"]:\n    case "beat":\n        pass',
    "reason": 'assert body["reason"] == "the Pod is gone"',
    "in a function": 'def test_x():\n    assert change.why == "beat"',
}
GOOD_FIELDS = {
    "slug": 'assert change.reason == "queued-again"',
    "code": "assert change.reason == Why.HEARTBEAT",
    "rendered by the code": "assert change.text == render(Why.HEARTBEAT.because())",
    "a number": 'assert "121" in change.message',
    "a reason of Kubernetes": 'assert status["reason"] == "AlreadyExists"',
    "output": 'assert "no such tenant" in run.stderr',
    "a parsed text": 'if text == "all": pass',
    "a separator": 'if "\\n" in change.text: pass',
    "an error": 'assert "is not a name" in str(raised.value)',
    "a test of rendering": 'def shown():\n    assert change.why == "beat"',
}
BAD_FIELDS_SQL = {
    "equal": "SELECT 1 FROM t WHERE why = 'beat'",
    "qualified": "SELECT 1 FROM t WHERE t.message <> 'gone'",
    "like": "SELECT 1 FROM t WHERE sentence LIKE 'fence%%'",
    "in": "SELECT 1 FROM t WHERE why IN ('beat')",
    "key": "SELECT 1 FROM t WHERE detail->>'message' = 'gone'",
}
GOOD_FIELDS_SQL = {
    "slug": "SELECT 1 FROM t WHERE reason = 'beat'",
    "empty": "SELECT 1 FROM t WHERE why <> ''",
    "cast": "SELECT 1 FROM t WHERE name::text = 'beat'",
    "written": "UPDATE t SET why = 'beat' WHERE id = 1",
}


@pytest.mark.parametrize("source", BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_the_law_notices_a_compared_field(source: str) -> None:
    assert compared_fields(source)


@pytest.mark.parametrize("source", GOOD_FIELDS.values(), ids=GOOD_FIELDS)
def test_the_law_lets_fields_be_shown(source: str) -> None:
    assert compared_fields(source, {"shown"}) == []


@pytest.mark.parametrize("text", BAD_FIELDS_SQL.values(), ids=BAD_FIELDS_SQL)
def test_the_law_notices_a_compared_column(text: str) -> None:
    assert compared_fields_in_sql(text)


@pytest.mark.parametrize("text", GOOD_FIELDS_SQL.values(), ids=GOOD_FIELDS_SQL)
def test_the_law_lets_columns_be_written(text: str) -> None:
    assert compared_fields_in_sql(text) == []


@pytest.mark.parametrize("source", BAD_PYTHON.values(), ids=BAD_PYTHON)
def test_the_law_notices_a_matched_sentence(source: str) -> None:
    assert matched_sentences(source, {"runyard.proofs": frozenset({"ANOTHER", "KNOWN[]"})})


@pytest.mark.parametrize("source", GOOD_PYTHON.values(), ids=GOOD_PYTHON)
def test_the_law_lets_sentences_be_shown(source: str) -> None:
    assert matched_sentences(source) == []


@pytest.mark.parametrize("text", BAD_SQL.values(), ids=BAD_SQL)
def test_the_law_notices_a_sentence_in_sql(text: str) -> None:
    assert matched_sentences_in_sql(text)


@pytest.mark.parametrize("text", GOOD_SQL.values(), ids=GOOD_SQL)
def test_the_law_lets_sql_compare_codes(text: str) -> None:
    assert matched_sentences_in_sql(text) == []
