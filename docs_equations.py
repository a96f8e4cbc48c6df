"""Hook of MkDocs: equations become MathML when the site is built, so that a reader needs no script and no network."""

import html
import re

from latex2mathml.converter import convert

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(html_text: str, **_: object) -> str:
    """Replace every equation that `pymdownx.arithmatex` marked."""
    return EQUATION.sub(_mathml, html_text)


def _mathml(found: re.Match[str]) -> str:
    tag, bracket, latex = found.groups()
    equation = convert(html.unescape(latex), display="block" if bracket == "[" else "inline")
    return f"<{tag}>{equation}</{tag}>"
