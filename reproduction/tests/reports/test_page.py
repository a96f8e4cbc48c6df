"""The HTML page: valid, in one file, with all text escaped."""

import base64
import re
from pathlib import Path

import pytest

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.reports.page import page
from paper_support.html_checks import check_self_contained

PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


REPORT = r"""# A \<b\> report

## Table 1: <script>alert(1)</script>

| method | ours |
|---|---|
| \<script\>alert("x")\</script\> | 1 & 2 |

## Figure

![a picture](one.png)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "one.png").write_bytes(PICTURE)
    return tmp_path


def test_the_page_is_whole_and_fetches_nothing(folder: Path):
    found = check_self_contained(page(REPORT, folder))
    assert found.text["title"] == ["A <b> report"]
    (source,) = found.attributes("src")
    assert base64.b64decode(source.removeprefix("data:image/png;base64,")) == PICTURE
    assert found.attributes("alt") == ["a picture"]


def test_a_label_that_looks_like_a_program_is_text(folder: Path):
    text = page(REPORT, folder)
    assert "<script" not in text
    assert "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;" in text
    assert "".join(check_self_contained(text).text["td"]).startswith('<script>alert("x")</script>')


def test_a_table_scrolls_in_a_frame_that_the_keyboard_reaches(folder: Path):
    found = check_self_contained(page(REPORT, folder))
    parents = [above[-1] for tag, _, above in found.elements if tag == "table"]
    frames = [attributes for tag, attributes, _ in found.elements if tag == "div"]
    assert (parents, frames) == (["div"], [{"class": "frame", "tabindex": "0"}])
    assert re.search(r"\.frame \{ overflow-x: auto;", page(REPORT, folder))


def test_the_page_is_for_narrow_windows_and_both_colour_schemes(folder: Path):
    text = page(REPORT, folder)
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
    assert "@media (prefers-color-scheme: dark)" in text
    assert "img { display: block; max-width: 100%; height: auto;" in text


def test_the_contents_name_the_sections(folder: Path):
    found = check_self_contained(page(REPORT, folder))
    assert found.text["a"] == ["Table 1: <script>alert(1)</script>", "Figure"]


WRONG: list[tuple[str, str, str]] = [
    ("missing", "![](none.png)", "none.png of the report cannot be read: No such file"),
    ("another kind", "![](https://example.org/a.gif)", "a page embeds .png, .svg pictures; got a.gif"),
    ("outside", "![](../other/a.png)", "a.png lies outside of the report's folder"),
    ("absolute", "![](/etc/a.svg)", "/etc/a.svg lies outside of the report's folder"),
    ("elsewhere", "![](https://example.org/a.png)", "a.png of the report cannot be read"),
]


@pytest.mark.parametrize(("text", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_picture_that_cannot_be_embedded_is_an_error(text: str, message: str, tmp_path: Path):
    with pytest.raises(UserError, match=message):
        page(text, tmp_path)
