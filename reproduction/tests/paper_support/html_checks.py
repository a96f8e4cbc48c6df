"""A reader of HTML for tests: what must be true of a page in one file."""

from html.parser import HTMLParser

VOID = {"meta", "img", "br", "hr"}


class Page(HTMLParser):
    """Reads a page; an element that is not closed where it was opened is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None], tuple[str, ...]]] = []
        self.text: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs), tuple(self.open)))
        assert len(dict(attrs)) == len(attrs), f"<{tag}> has an attribute twice"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.setdefault(self.open[-1] if self.open else "", []).append(data)

    def attributes(self, name: str) -> list[str]:
        return [str(attributes[name]) for _, attributes, _ in self.elements if name in attributes]


def check_self_contained(text: str) -> Page:
    """Parse a page and require that it is whole, fetches nothing and holds no program."""
    assert text.startswith("<!DOCTYPE html>\n")
    found = Page(text)
    tags = [tag for tag, _, _ in found.elements]
    assert [tags.count(tag) for tag in ("html", "head", "body", "title", "main", "style")] == [1] * 6
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(tags)
    assert all(source.startswith("data:image/") for source in found.attributes("src"))
    anchors = found.attributes("id")
    assert len(anchors) == len(set(anchors))
    assert {link.removeprefix("#") for link in found.attributes("href")} <= set(anchors)
    assert not any(name.startswith("on") for _, attributes, _ in found.elements for name in attributes)
    style = "".join(found.text["style"])
    assert "url(" not in style
    assert "@import" not in style
    return found
