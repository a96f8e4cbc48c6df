"""Hook of MkDocs: equations become MathML when the site is built, so that a reader needs no script and no network.

Numbers of a table are kept on one line.
"""

import html
import re

from latex2mathml.converter import convert

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
CELL = re.compile(r"(?<=<td>)[^<]+(?=</td>)")
# What a browser may break at: the minus of 4e-16, the spaces of 5.2 ± 0.3.
NUMBER_IN_CELL = re.compile(r"[-+]?\d[\d.]*(?:e[-+]\d+| ± \d[\d.]*)")
NUMBER = re.compile(r"\\tag\{(\d+)\}")


def on_page_content(html_text: str, **_: object) -> str:
    """Replace every equation that `pymdownx.arithmatex` marked, and hold the numbers of tables together."""
    return CELL.sub(_whole_numbers, EQUATION.sub(_mathml, html_text))


def _whole_numbers(cell: re.Match[str]) -> str:
    return NUMBER_IN_CELL.sub(r'<span class="number">\g<0></span>', cell[0])


def _mathml(found: re.Match[str]) -> str:
    tag, bracket, latex = found.groups()
    # MathML has no numbers of equations: they stand beside the equation, where a link can point.
    latex, _, _ = (text := html.unescape(latex)).partition(r"\tag{")
    numbers = "".join(f'<span id="equation-{n}" class="number">({n})</span>' for n in NUMBER.findall(text))
    equation = convert(latex.strip(), display="block" if bracket == "[" else "inline")
    return f'<{tag} class="{"equation" if bracket == "[" else "formula"}">{equation}{numbers}</{tag}>'
