"""One self-contained HTML page from a report's Markdown: pictures inside, nothing fetched, all text escaped."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from orthonorm_paper.exceptions import UserError

_MEDIA = {".png": "image/png", ".svg": "image/svg+xml"}


def page(markdown: str, pictures: Path) -> str:
    """HTML of a report, complete in one file.

    Markdown's own HTML is off: a label like ``<script>`` is text. A table scrolls inside its own frame, and
    the second level of headings makes the list of contents.

    Args:
        markdown: the report; its first heading is the page's title.
        pictures: folder that its pictures' paths start from.

    Raises:
        UserError: a picture that is not there, or of a kind that is not embedded.

    Examples:
        >>> text = page("# a <b> report", Path())
        >>> "<title>a &lt;b&gt; report</title>" in text
        True
    """
    parser = MarkdownIt("commonmark", {"html": False, "xhtmlOut": False}).enable("table")
    tokens = parser.parse(markdown)
    contents = list(_contents(tokens))
    _embed(tokens, pictures)
    body = parser.renderer.render(_framed(tokens), parser.options, {})
    titles = [text for level, text, _ in contents if level == "h1"]
    strict = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return strict.from_string(_template()).render(
        title=titles[0] if titles else "Report",
        contents=[(text, anchor) for level, text, anchor in contents if level == "h2"],
        # The parser escaped it.
        body=Markup(body),
    )


def _template() -> str:
    return (files("orthonorm_paper.reports") / "page.html.jinja").read_text(encoding="utf-8")


def _contents(tokens: Sequence[Token]) -> Iterator[tuple[str, str, str]]:
    """Level, text and anchor of each heading; the anchors are set on the way."""
    number = 0
    for opening, inline in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            number += 1
            anchor = f"section-{number}"
            opening.attrSet("id", anchor)
            text = "".join(child.content for child in inline.children or [])
            yield opening.tag, text, anchor


def _embed(tokens: Sequence[Token], pictures: Path) -> None:
    for token in tokens:
        for child in token.children or []:
            if child.type == "image":
                child.attrSet("src", _data_uri(pictures / str(child.attrGet("src")), pictures))


def _data_uri(path: Path, pictures: Path) -> str:
    if path.suffix not in _MEDIA:
        raise UserError(f"a page embeds {', '.join(_MEDIA)} pictures; got {path.name}.")
    if not path.resolve().is_relative_to(pictures.resolve()):
        raise UserError(f"picture {path} lies outside of the report's folder {pictures}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"picture {path} of the report cannot be read: {error.strerror}") from None
    return f"data:{_MEDIA[path.suffix]};base64,{base64.b64encode(content).decode()}"


def _framed(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with a frame around each table; it takes the keyboard, so that it scrolls without a mouse."""
    framed: list[Token] = []
    for token in tokens:
        if token.type == "table_open":
            framed.append(_tag("frame_open", 1, {"class": "frame", "tabindex": "0"}))
        framed.append(token)
        if token.type == "table_close":
            framed.append(_tag("frame_close", -1, {}))
    return framed


def _tag(kind: str, nesting: Any, attributes: dict[str, str | int | float]) -> Token:
    return Token(kind, "div", nesting, attrs=attributes, block=True)
