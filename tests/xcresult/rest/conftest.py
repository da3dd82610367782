"""Tests of this folder use a real Postgres, a real socket and real object storage."""

from collections.abc import Iterator

import pytest
from tests.blobs.blobstores import s3_server
from tests.fixtures_postgres import database_url, postgres  # noqa: F401 fixtures are found by their names here


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as url:
        yield url
