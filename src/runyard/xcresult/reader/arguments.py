"""Formats a set of arguments like Apple's tool: by its values.

A UI test that runs for each of its app's configurations has them as arguments, in numbers: the appearance and
the orientation. Their order varies from run to run; the appearance is shown first.
"""

from runyard.xcresult.reader.model import Argument

_WORDS = {
    "XCUIAppearanceMode": {
        "1": "Light Appearance",
        "2": "Dark Appearance",
        "4": "Unspecified Appearance",
    },
    "XCUIDeviceOrientation": {
        "1": "Portrait",
        "2": "Portrait Upside Down",
        "3": "Landscape Left",
        "4": "Landscape Right",
    },
}


def shown(arguments: tuple[Argument, ...]) -> str:
    """`"hello", 3`, or `Dark Appearance, Portrait`."""
    settings = [one for one in arguments if one.label in _WORDS]
    if settings and len(settings) == len(arguments):
        arguments = tuple(sorted(arguments, key=lambda one: one.label))
    return ", ".join(_WORDS.get(one.label, {}).get(one.value, one.value) for one in arguments)
