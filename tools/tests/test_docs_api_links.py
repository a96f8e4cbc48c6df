"""The hook that links inline code of the pages to the API page."""

from types import SimpleNamespace

import pytest

from docs_api_links import linked, on_page_content

FOLD = '<autoref identifier="orthonorm.fold"><code>{}</code></autoref>'


@pytest.mark.parametrize("text", ["fold", "on.fold", "orthonorm.fold", "on.fold(model)", "fold(model, x=[1, 2])"])
def test_a_public_name_is_linked(text: str):
    assert linked(f"<p>Call <code>{text}</code>.</p>") == f"<p>Call {FOLD.format(text)}.</p>"


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("shard_", "orthonorm.distributed.shard_"),
        ("orthonorm.distributed.plan(model, R)", "orthonorm.distributed.plan"),
        ("functional.orthonormalize", "orthonorm.functional.orthonormalize"),
        ("OrthogonalConfig(scale=1.414)", "orthonorm.OrthogonalConfig"),
        ("StiefelSGD", "orthonorm.StiefelSGD"),
    ],
)
def test_a_name_of_a_subpackage_or_a_class_leads_to_its_entry(text: str, entry: str):
    assert linked(f"<code>{text}</code>") == f'<autoref identifier="{entry}"><code>{text}</code></autoref>'


@pytest.mark.parametrize(
    "html",
    [
        "<code>model.fold</code>",
        "<code>plain = orthonorm.fold(model)</code>",
        "<code>on.fold(model).state_dict()</code>",
        "<code>folded</code>",
        "<code>reference</code>",
        "<h2 id='fold'>What <code>fold</code> does</h2>",
        "<a href='x.html'>what <code>fold</code> does</a>",
        "<pre><span></span><code>fold\nfold(model)\n</code></pre>",
    ],
)
def test_other_code_headings_links_and_blocks_stay(html: str):
    assert linked(html) == html


def test_a_name_is_linked_once_in_each_section():
    section = "<h2>Title</h2><p><code>fold</code> and <code>on.fold(model)</code></p>"
    once = f"<h2>Title</h2><p>{FOLD.format('fold')} and <code>on.fold(model)</code></p>"
    assert linked(2 * section) == 2 * once


@pytest.mark.parametrize(
    ("page", "links"),
    [("tour.md", True), ("guides/export.md", True), ("reference.md", False), ("bench/ways.md", False)],
)
def test_the_pages_that_people_wrote_have_links(page: str, links: bool):
    html = on_page_content("<code>fold</code>", page=SimpleNamespace(file=SimpleNamespace(src_uri=page)))
    assert ("autoref" in html) == links
