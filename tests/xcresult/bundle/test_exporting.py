"""Tests the export of attachments: no file outside the directory, none partial or duplicate, Apple's manifest."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.xcresult.formats.results import case, result, run

from runyard.xcresult.archives.limits import Limits
from runyard.xcresult.bundle.choosing import Chosen, similar, unmatched
from runyard.xcresult.bundle.exporting import export
from runyard.xcresult.errors import TooLarge
from runyard.xcresult.reader.model import Argument, Attachment, Repetition, Result
from runyard.xcresult.reader.objects import ObjectProblem

UUID = "0F8FAD5B-D9CB-469F-A165-70867728950E"
HEIC = b"\0\0\0\x24ftypheic" + b"\0" * 100


class Memory:
    """A store in a dictionary; `breaks` after the first piece."""

    def __init__(self, breaks: str = "", **payloads: bytes) -> None:
        self.payloads = payloads
        self.breaks = breaks
        self.streamed: list[str] = []

    def stream(self, object_id: str) -> Iterator[bytes]:
        if object_id not in self.payloads:
            raise ObjectProblem(object_id, "the object is missing")
        self.streamed.append(object_id)
        payload = self.payloads[object_id]
        for at in range(0, len(payload), 16):
            yield payload[at : at + 16]
            if object_id == self.breaks:
                raise ObjectProblem(object_id, "the frame breaks off")

    def has(self, object_id: str) -> bool:
        return object_id in self.payloads

    def read(self, object_id: str) -> bytes:
        return b"".join(self.stream(object_id))

    def refs(self, object_id: str) -> tuple[str, ...]:
        return ()

    def ids(self) -> Iterator[str]:
        return iter(self.payloads)


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def attached(
    payload: str, filename: str = "Shot_0.png", uuid: str = UUID, *, failed: bool = False
) -> Attachment:
    return Attachment(
        filename=filename,
        payload_id=payload,
        uuid=uuid,
        present=True,
        timestamp=12.5,
        on_failure=failed,
    )


def having(*attachments: Attachment) -> Result:
    return result(case("a()", replace(run(), attachments=attachments)))


def test_the_manifest_has_apples_shape(tmp_path: Path) -> None:
    executed = replace(
        run(retry=2),
        attachments=(attached("p", failed=True),),
        arguments=(Argument(value="x"),),
        repetition=Repetition(2, 3),
    )
    export(Memory(p=b"png"), result(case("a()", executed)), tmp_path / "out")
    written = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert written == [
        {
            "testIdentifier": "CartTests/a()",
            "testIdentifierURL": "",
            "attachments": [
                {
                    "exportedFileName": "CartTests_a_1.png",
                    "uuid": UUID,
                    "suggestedHumanReadableName": "Shot_0.png",
                    "isAssociatedWithFailure": True,
                    "timestamp": 12.5,
                    "configurationName": "Test Scheme Action",
                    "deviceName": "iPhone 17",
                    "deviceId": "PHONE-1",
                    "repetitionNumber": 2,
                    "arguments": ["x"],
                }
            ],
        }
    ]
    assert (tmp_path / "out" / "CartTests_a_1.png").read_bytes() == b"png"


def test_what_is_absent_is_left_out_of_the_manifest(tmp_path: Path) -> None:
    export(Memory(p=b"x"), having(replace(attached("p"), timestamp=None)), tmp_path)
    (test,) = json.loads((tmp_path / "manifest.json").read_bytes())
    assert not {"timestamp", "repetitionNumber", "arguments"} & set(test["attachments"][0])


@pytest.mark.parametrize(
    "filename",
    [
        "../../etc/passwd",
        "/abs/olute.png",
        "a/b.txt",
        "..",
        "",
        "x.p/ng",
        "C:\\x.exe",
        "n\0ul.png",
        "x." + "y" * 300,
    ],
)
@pytest.mark.parametrize("uuid", ["../up", "", "a" * 500, UUID + "/..", "con"])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, filename: str, uuid: str) -> None:
    target = tmp_path / "deep" / "out"
    manifest = export(Memory(p=b"x"), having(attached("p", filename, uuid)), target)
    (name,) = (each.exported_file_name for each in manifest.tests[0].attachments)
    assert listed(target) == sorted([name, "manifest.json"])
    assert listed(tmp_path) == ["deep"] and listed(tmp_path / "deep") == ["out"]
    assert len(name) < 60


@pytest.mark.parametrize(
    "words",
    [
        "../../etc/passwd",
        "/abs",
        "..",
        "",
        "C:\\x",
        "n\0ul",
        "é" * 5000,
        "-rf",
        ".ssh",
        "a\n::error::b",
    ],
)
def test_no_name_of_a_test_leads_out_of_the_directory(tmp_path: Path, words: str) -> None:
    evil = case(words, replace(run(), attachments=(attached("p"),)), suites=(words, words))
    target = tmp_path / "deep" / "out"
    manifest = export(Memory(p=b"x"), result(evil), target)
    (name,) = (each.exported_file_name for each in manifest.tests[0].attachments)
    assert listed(target) == sorted([name, "manifest.json"])
    assert listed(tmp_path) == ["deep"] and listed(tmp_path / "deep") == ["out"]


def test_a_link_in_the_directory_is_replaced_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    target = tmp_path / "out"
    target.mkdir()
    file = "CartTests_a_1.png"
    for name in (file, "manifest.json", f".{file}.{os.getpid()}"):
        (target / name).symlink_to(outside)
    export(Memory(p=b"new"), having(attached("p")), target)
    assert outside.read_text() == "precious"
    assert (target / file).read_bytes() == b"new" and not (target / file).is_symlink()


def test_a_payload_that_breaks_off_leaves_no_file_and_hinders_nothing(tmp_path: Path) -> None:
    objects = Memory(breaks="bad", bad=b"x" * 50, good=b"fine")
    made = having(
        attached("bad"),
        attached("gone", uuid=""),
        attached("", "Deleted.png"),
        attached("good"),
    )
    manifest = export(objects, made, tmp_path)
    assert listed(tmp_path) == ["CartTests_a_4.png", "manifest.json"]
    assert [missed.why for missed in manifest.missed] == [
        "the frame breaks off",
        "the object is missing",
        "its payload was not kept",
    ]


def test_a_payload_is_written_once_and_names_do_not_collide(tmp_path: Path) -> None:
    objects = Memory(p=b"one", q=b"two")
    other = "22222222-D9CB-469F-A165-70867728950E"
    twice = having(attached("p"), attached("p", uuid=other), attached("q", uuid=UUID.lower()))
    manifest = export(objects, twice, tmp_path)
    names = [each.exported_file_name for each in manifest.tests[0].attachments]
    assert names == ["CartTests_a_1.png", "CartTests_a_2.png", "CartTests_a_3.png"]
    ids = [each.uuid for each in manifest.tests[0].attachments]
    assert ids == [UUID, other, UUID]
    assert [(tmp_path / name).read_bytes() for name in names] == [b"one", b"one", b"two"]
    assert objects.streamed == ["p", "q"]
    assert (manifest.files, manifest.size) == (3, 6)
    assert (tmp_path / names[0]).samefile(tmp_path / names[1])


def test_where_links_cannot_be_made_a_payload_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError("this file system has no links")

    monkeypatch.setattr(Path, "hardlink_to", refused)
    other = "22222222-D9CB-469F-A165-70867728950E"
    export(Memory(p=b"one"), having(attached("p"), attached("p", uuid=other)), tmp_path)
    assert listed(tmp_path) == ["CartTests_a_1.png", "CartTests_a_2.png", "manifest.json"]


def test_exporting_again_changes_nothing(tmp_path: Path) -> None:
    made = having(attached("p", uuid=""), attached("q"), attached("p"), attached("p"))
    objects = Memory(p=b"one", q=b"two")
    export(objects, made, tmp_path)
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    export(objects, made, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first


def test_pictures_are_called_what_they_are(tmp_path: Path) -> None:
    def name(attachment: Attachment, beginning: bytes) -> str:
        chosen = Chosen(true_extensions=True)
        manifest = export(Memory(p=beginning), having(attachment), tmp_path, chosen=chosen)
        return manifest.tests[0].attachments[0].exported_file_name.partition(".")[2]

    assert name(attached("p", "Shot.png"), HEIC) == "heic"
    assert name(attached("p", "Shot.PNG"), b"\x89PNG\r\n\x1a\n") == "png"
    text = replace(attached("p", "Shot"), uniform_type="public.plain-text")
    assert name(text, b"hi") == "txt"
    assert name(attached("p", "Shot"), b"hi") == ""


def test_a_file_does_not_change_its_name_with_the_selection(tmp_path: Path) -> None:
    made = having(attached("p"), attached("q", failed=True))
    objects = Memory(p=b"one", q=b"two")
    only = export(objects, made, tmp_path, chosen=Chosen(only_failures=True))
    assert [each.exported_file_name for each in only.tests[0].attachments] == ["CartTests_a_2.png"]
    export(objects, made, tmp_path)
    assert (tmp_path / "CartTests_a_2.png").read_bytes() == b"two"


def test_limits_end_an_export_and_leave_nothing_half(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="entry_bytes"):
        export(Memory(p=b"x" * 99), having(attached("p")), tmp_path, limits=Limits(entry_bytes=50))
    with pytest.raises(TooLarge, match="total_bytes"):
        export(Memory(p=b"x" * 99), having(attached("p")), tmp_path, limits=Limits(total_bytes=50))
    assert listed(tmp_path) == []


def test_attachments_can_be_chosen(tmp_path: Path) -> None:
    made = result(
        case(
            "a()", replace(run(), attachments=(attached("p"), attached("q", uuid="", failed=True)))
        ),
        case("b()", replace(run(), attachments=(attached("r", uuid=""),)), suites=("Cart",)),
    )
    objects = Memory(p=b"1", q=b"2", r=b"3")

    def count(**chosen: object) -> int:
        return export(objects, made, tmp_path, chosen=Chosen(**chosen)).files  # type: ignore[arg-type]  # a table of cases

    assert count() == 3
    assert count(only_failures=True) == 1
    assert count(tests=("CartTests/a()",)) == 2
    assert count(tests=("AppTests/CartTests/a()",)) == 2
    assert count(tests=("Cart",)) == 1
    assert count(tests=("Cart/",)) == 1
    assert count(tests=("AppTests/CartTests/a",)) == 2, "as xcodebuild names it"
    assert count(tests=("AppTests",)) == 3
    assert count(tests=("nothing",)) == 0
    assert unmatched(Chosen(tests=("Cart", "nothing", "AppTests")), made.cases) == ("nothing",)
    assert unmatched(Chosen(), made.cases) == ()
    assert unmatched(Chosen(tests=("",)), made.cases) == ("",)


def test_a_name_with_a_mistake_does_not_leave_one_without_a_hint() -> None:
    cases = result(case("testLogin()"), case("testLogout()"), case("sum(of:)")).cases
    assert similar("CartTests/testLogni()", cases)[0] == "AppTests/CartTests/testLogin()"
    assert similar("logout", cases) == ("AppTests/CartTests/testLogout()",)
    assert similar("xyz", cases) == similar("", ()) == ()
