"""Tests that every real bundle gives its known figures."""

import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.reading import read_bundle
from runyard.xcresult.bundle.verifying import verify
from runyard.xcresult.reader.figures import figures


@pytest.mark.parametrize("name", fixtures.parameters())
def test_a_real_bundle_reads_to_its_figures(name: str) -> None:
    bundle = fixtures.bundle(name)
    verified = verify(bundle)
    found = figures(read_bundle(bundle), objects=verified.objects, objects_hash_ok=verified.hash_ok)
    expected = fixtures.figures()[name]
    assert found == fixtures.reader_figures(expected)
