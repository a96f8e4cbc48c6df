"""Every link of the README and of docs/ leads to a file that is there, and every anchor to a heading that is there."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from markdown.extensions.toc import slugify

import site_check

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# The text of a link may hold brackets; an address in brackets of its own is not used here.
LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")


def links(page: Path) -> list[str]:
    """The addresses inside of the repository that a page points to."""
    found = [first or second for first, second in LINK.findall(FENCE.sub("", page.read_text()))]
    return [target for target in found if not urlsplit(target).scheme]


def anchors(page: Path) -> set[str]:
    """What a link can point at on a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {slugify(re.sub(r"[`*]|\]\(.*?\)|\[", "", heading), "-") for heading in headings}


def broken(page: Path) -> list[str]:
    """The links of a page that lead nowhere."""
    wrong = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            wrong.append(target)
    return wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path):
    assert broken(page) == []


def test_links_are_found_and_can_be_broken(tmp_path: Path):
    assert sum(len(links(page)) for page in PAGES) > 60
    (tmp_path / "a.md").write_text(
        "# One `two`\n[x](b.md) [y](#one-two) [z](#three) ![p](p.png)\n```\n[n](n.md)\n```\n"
    )
    assert broken(tmp_path / "a.md") == ["b.md", "#three", "p.png"]


def test_the_check_of_the_site_finds_links_that_lead_nowhere(tmp_path: Path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "index.html").write_text('<h1 id="top"></h1><a href="sub/a.html#b">1</a><a href="https://x.org/">2</a>')
    (tmp_path / "sub" / "a.html").write_text('<p id="b"></p><a href="../index.html#top"></a><img src="none.png">')
    assert site_check.broken_links(tmp_path) == ["sub/a.html: none.png is no file of the site"]
    (tmp_path / "index.html").write_text('<a href="sub/a.html#c">1</a>')
    assert site_check.broken_links(tmp_path) == [
        "index.html: sub/a.html#c is no anchor of sub/a.html",
        "sub/a.html: ../index.html#top is no anchor of index.html",
        "sub/a.html: none.png is no file of the site",
    ]
