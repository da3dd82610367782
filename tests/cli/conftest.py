"""Some tests of this folder use a real Postgres, and one key for all practice GitHubs."""

import pytest
from tests.fixtures_browser import (  # noqa: F401 fixtures are found by their names here
    chromium,
)
from tests.fixtures_postgres import (  # noqa: F401 fixtures are found by their names here
    database_url,
    empty_database_url,
    postgres,
)
from tests.fixtures_registry import (  # noqa: F401 fixtures are found by their names here
    private_registry,
    registry,
    registry_program,
)

from runyard.embedded.github.identity import KeyPair, generate_key_pair


@pytest.fixture(scope="session")
def app_keys() -> KeyPair:
    return generate_key_pair()
