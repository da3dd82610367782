"""Shows the screenshots of a failed run in Markdown, or names their files.

A job summary or a comment shows a picture only from a URL that GitHub can fetch; it removes `data:` URLs, and files of
an artifact have no URL. So the files that `attachments` exports are published first, and `url` is where. Without it,
the names of the exported files are listed. Recordings and HEIC pictures, which a page does not show, are links.

Invariant: the only text of a bundle is the name of an exported file, which is safe (`attachment_names.py` in `reader`).
"""

from html import escape
from urllib.parse import quote

from runyard.xcresult.formats.sources import base_url
from runyard.xcresult.reader.attachment_names import Names, case_key, with_extension
from runyard.xcresult.reader.model import Attachment, Case, Run

_SHOWN = ("png", "jpg", "jpeg", "gif", "webp")
_LINKED = ("heic", "heif", "mp4", "mov")
_MOST = 3
_WIDTH = 300


def picture_lines(case: Case, run: Run, names: Names, url: str) -> list[str]:
    """Lines with the pictures of a run: those of its failures, or else its last ones."""
    files = _files(case, run, names)
    if not files:
        return []
    shown = [_picture(file, url) if url else f"`{file}`" for file in files[-_MOST:]]
    more = f", and {len(files) - _MOST} more" if len(files) > _MOST else ""
    return [f"{' '.join(shown)}{more}" if url else f"exported as {', '.join(shown)}{more}"]


def _files(case: Case, run: Run, names: Names) -> list[str]:
    of_case = names.get(case_key(case), ())
    of_run = of_case[case.runs.index(run)] if of_case else ()
    found = [
        (attachment, file)
        for attachment, stem in zip(run.attachments, of_run, strict=False)
        if _visible(attachment, file := with_extension(stem, attachment))
    ]
    failed = [file for attachment, file in found if attachment.on_failure]
    return failed or [file for _, file in found]


def _visible(attachment: Attachment, file: str) -> bool:
    return attachment.present and _extension(file) in (*_SHOWN, *_LINKED)


def _extension(file: str) -> str:
    return file.rpartition(".")[2]


def _picture(file: str, url: str) -> str:
    address = escape(f"{base_url(url)}/{quote(file)}")
    if _extension(file) in _SHOWN:
        return f'<img alt="{file}" src="{address}" width="{_WIDTH}">'
    return f'<a href="{address}">{file}</a>'
