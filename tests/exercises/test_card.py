"""Cards and tables: HTML and text say the same, nothing gets in unescaped, and both themes have contrast."""

import html
import re

import pytest

from lockstep.exercises.card import TONES, Card, Row
from lockstep.exercises.table import Table

CARD = Card(
    "00.1 Hello <script>",
    "wrong, 0 of 2 points",
    "bad",
    (
        Row("Asked", "Return `a < b` & more."),
        Row("Got", "[1, <b>]\n  two", code=True),
        Row("It printed", "<img src=x>"),
    ),
)
TABLE = Table("Title <b>", ("Name", "Points"), (("a <i>", "2 of 3"), ("b", "10 of 10")), "All & <u>")


def _words(text):
    """What is said, without the lines of a table and marks of punctuation."""
    return {word.strip(":`") for word in text.split()} - {""} - {"-" * n for n in range(1, 20)}


@pytest.mark.parametrize("shown", [CARD, TABLE])
def test_html_and_text_say_the_same(shown):
    read = html.unescape(re.sub(r"<[^>]+>", " ", shown._repr_html_()))
    assert _words(shown.text) == _words(read)


@pytest.mark.parametrize("shown", [CARD, TABLE])
def test_nothing_from_outside_is_markup(shown):
    tags = set(re.findall(r"<(\w+)", shown._repr_html_()))
    assert tags <= {"div", "span", "strong", "code", "pre", "table", "caption", "thead", "tbody", "tr", "th", "td"}


def _luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(one, other):
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("tone", TONES)
def test_both_themes_have_contrast(tone):
    """WCAG 2: 4.5 for text, 3 for shapes."""
    _, badge, edge = TONES[tone]
    assert _contrast("#ffffff", badge) >= 4.5
    assert _contrast(edge, "#ffffff") >= 3 and _contrast(edge, "#111111") >= 3


def test_code_in_text_is_not_broken_over_lines():
    card = Card("x", "y", "note", (Row("Next", "word " * 18 + "`call(one, two, three, four)` " + "word " * 9),))
    assert "`call(one, two, three, four)`" in card.text
    assert max(map(len, card.text.splitlines())) <= 100


def test_an_empty_table_shows_its_head():
    assert "Name" in Table("T", ("Name",), ()).text and "Name" in Table("T", ("Name",), ())._repr_html_()
