"""One suite for both stores; the S3 server is started once, and each test has a prefix of its own."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.blobs.blobstores import bucket, directory, s3_server

from runyard.blobs.store import StoredBlobs

_numbers = itertools.count()


@pytest.fixture(scope="session")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with s3_server(tmp_path_factory.mktemp("s3")) as url:
        yield url


@pytest.fixture(params=["directory", "s3"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> StoredBlobs:
    if request.param == "directory":
        return directory(tmp_path / "blobs")
    return bucket(request.getfixturevalue("endpoint"), prefix=f"tests/{next(_numbers)}")
