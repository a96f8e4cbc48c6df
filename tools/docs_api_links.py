"""Hook of MkDocs: inline code that names a public object links to its entry of the API page, once in each section.

The public objects are those that docs/reference.md has entries for. A name may have its module before it, `on.fold`,
and arguments behind it, `fold(model)`. Headings, code blocks and what is a link already stay as they are.
"""

import re
from pathlib import Path
from typing import Any

REFERENCE = Path(__file__).parents[1] / "docs" / "reference.md"
ENTRIES = re.findall(r"^::: orthonorm\.(\S+)$", REFERENCE.read_text(), re.MULTILINE)
# By `functional.project` and by `project`.
NAMES = {name: f"orthonorm.{entry}" for entry in ENTRIES for name in (entry, entry.rpartition(".")[2])}
PART = re.compile(r"<(h[1-6]|pre|a)\b.*?</\1>|<code>((?:on\.|orthonorm\.)?([\w.]+)(?:\([^()]*\))?)</code>", re.DOTALL)


def on_page_content(html_text: str, *, page: Any, **_: object) -> str:
    """Link the names of a page that people wrote."""
    folder, _, name = page.file.src_uri.rpartition("/")
    return linked(html_text) if folder in ("", "guides") and name != REFERENCE.name else html_text


def linked(html_text: str) -> str:
    """Return the HTML with links, which the plugin autorefs resolves: it warns of one that leads nowhere."""
    seen: set[str] = set()

    def link(part: re.Match[str]) -> str:
        if (part[1] or "").startswith("h"):
            seen.clear()
        entry = NAMES.get(part[3] or "")
        if entry is None or entry in seen:
            return part[0]
        seen.add(entry)
        return f'<autoref identifier="{entry}">{part[0]}</autoref>'

    return PART.sub(link, html_text)
