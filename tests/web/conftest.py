"""Tests of this folder use a real Postgres, and one key for all practice GitHubs."""

import pytest
from tests.fixtures_browser import (  # noqa: F401 fixtures are found by their names here
    chromium,
)
from tests.fixtures_postgres import (  # noqa: F401 fixtures are found by their names here
    database_url,
    postgres,
)

from runyard.embedded.github.identity import KeyPair, generate_key_pair


@pytest.fixture(scope="session")
def app_keys() -> KeyPair:
    return generate_key_pair()
