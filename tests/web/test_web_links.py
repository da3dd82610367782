"""Links to runs lead to the configured GitHub, whatever an event contained."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runyard.web.links import run_url

GITHUB = "https://github.example"


@pytest.mark.parametrize(
    ("github", "expected"),
    [
        ("https://github.com", "https://github.com/acme/app/actions/runs/7/job/8"),
        ("https://ghe.example/base/", "https://ghe.example/base/acme/app/actions/runs/7/job/8"),
        ("http://127.0.0.1:80", "http://127.0.0.1:80/acme/app/actions/runs/7/job/8"),
        ("", ""),
        ("https://", ""),
        ("javascript:alert(1)", ""),
        ("ftp://github.com", ""),
    ],
)
def test_a_link_begins_with_the_configured_address(github: str, expected: str) -> None:
    assert run_url(github, "acme/app", run_id=7, job_id=8) == expected


@pytest.mark.parametrize(
    "repository",
    [
        *("", "acme", "acme/", "/app", "acme/app/x", "acme/../..", "../app", "acme/.", "a b/c"),
        *("acme/app?x=1", "acme/app#x", "acme/a%2fb", "@evil.example/x", "acme/ä", "acme/app\n"),
    ],
)
def test_a_repository_that_github_does_not_allow_has_no_link(repository: str) -> None:
    assert run_url(GITHUB, repository, run_id=7, job_id=8) == ""


@pytest.mark.parametrize(("run_id", "job_id"), [(0, 8), (-1, 8), (7, 0)])
def test_a_job_whose_run_is_not_known_has_no_link(run_id: int, job_id: int) -> None:
    assert run_url(GITHUB, "acme/app", run_id=run_id, job_id=job_id) == ""


@given(st.text(max_size=60), st.integers(), st.integers())
def test_no_repository_leads_to_another_host(repository: str, run_id: int, job_id: int) -> None:
    url = run_url(GITHUB, repository, run_id=run_id, job_id=job_id)
    assert url in ("", f"{GITHUB}/{repository}/actions/runs/{run_id}/job/{job_id}")
    assert url.count("/") in (0, 8)
