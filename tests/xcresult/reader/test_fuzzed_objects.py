"""Tests real bundles with damaged objects: read with warnings, or refused with a typed error."""

import random

import msgspec
import pytest
from tests.xcresult import fixtures

from runyard.xcresult.bundle.directory import Directory
from runyard.xcresult.errors import XcresultError
from runyard.xcresult.reader.figures import figures
from runyard.xcresult.reader.model import Wanted
from runyard.xcresult.reader.report import report
from runyard.xcresult.reader.result import read_result

ROUNDS = 6


class Damaged(Directory):
    """A store that changes objects after their ids have been verified."""

    chance: random.Random
    rate: float

    def read(self, object_id: str) -> bytes:
        data = super().read(object_id)
        if len(data) > 200_000 or self.chance.random() > self.rate:
            return data
        changed = bytearray(data)
        for _ in range(self.chance.randint(1, 3)):
            self._change(changed)
        return bytes(changed)

    def _change(self, data: bytearray) -> None:
        at = self.chance.randrange(len(data) + 1)
        match self.chance.randrange(4):
            case 0:
                data[at : at + 1] = self.chance.randbytes(1)
            case 1:
                del data[at : at + self.chance.randint(1, 30)]
            case 2:
                data[at:at] = data[self.chance.randrange(len(data) + 1) :][:60]
            case _:
                data[at : at + 1] = str(self.chance.randint(0, 99)).encode()


@pytest.mark.parametrize("name", fixtures.parameters())
def test_damage_is_a_warning_or_a_typed_error(name: str) -> None:
    for number in range(ROUNDS):
        objects = Damaged(fixtures.bundle(name))
        objects.chance = random.Random(f"{name} {number}")
        objects.rate = (0.05, 0.3, 1.0)[number % 3]
        try:
            result = read_result(objects, objects.info(), wanted=Wanted(activities=number % 2 == 0))
        except XcresultError:
            continue
        assert msgspec.json.encode(result)
        assert msgspec.json.encode(report(result))
        assert figures(result, objects=0, objects_hash_ok=0)
