"""Open every page of the built site in a browser, wide and narrow, and check every link inside of it.

    python tools/site_check.py [SITE]    # the folder that `make docs` writes; needs Chromium, and no network

It fails on a link or an anchor that leads nowhere, on a message in the browser's console, and on a page whose body is
wider than the window (a table or a listing scrolls by itself, a page does not).
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1280, 390)
TIMEOUT = 300.0
HARNESS = "/site-check"
# A page is loaded into a frame as wide as the window would be, so that its own media queries answer as there.
PROGRAM = """<!doctype html><title>check</title><body><script>
const load = (page, width) => new Promise((done) => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  frame.onload = () => setTimeout(() => {
    const wide = frame.contentDocument.documentElement.scrollWidth;
    const hollow = [...frame.contentDocument.images].filter((image) => !image.naturalWidth).map((image) => image.src);
    frame.remove();
    done({page, width, wide, hollow});
  }, 100);
  frame.src = page;
  document.body.append(frame);
});
(async () => {
  const found = [];
  for (const width of WIDTHS) for (const page of PAGES) found.push(await load(page, width));
  await fetch("/site-check", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


class Links(HTMLParser):
    """The addresses that a page points to and the ids that can be pointed at."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag points to, and its name."""
        given = dict(attrs)
        self.targets += [value for key in ("href", "src") if (value := given.get(key))]
        self.ids |= {value for key in ("id", "name") if (value := given.get(key))}


def read_links(file: Path) -> Links:
    """Return the links and ids of a page."""
    links = Links()
    links.feed(file.read_text(encoding="utf-8"))
    return links


def broken_links(site: Path) -> list[str]:
    """Return each link to a file or an anchor that the site does not have, with the page that it is on."""
    pages = {file.relative_to(site).as_posix(): read_links(file) for file in sorted(site.rglob("*.html"))}
    wrong = []
    for page, links in pages.items():
        for target in links.targets if page != "404.html" else []:  # served from any depth, so its links are absolute
            if urlsplit(target).scheme or target.startswith("//"):
                continue
            path, anchor = urldefrag(urljoin(f"/{page}", target))
            name = unquote(path).lstrip("/") or "index.html"
            if not (site / name).exists():
                wrong.append(f"{page}: {target} is no file of the site")
            elif anchor and name in pages and unquote(anchor) not in pages[name].ids | {"__comments"}:
                wrong.append(f"{page}: {target} is no anchor of {name}")
    return wrong


class Handler(SimpleHTTPRequestHandler):
    """The site, the page that opens all others, and a place for what it found."""

    def __init__(self, *args: object, program: str, found: list, done: threading.Event, directory: str) -> None:
        self.program, self.found, self.done = program, found, done
        super().__init__(*args, directory=directory)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Answer with the program at its own address, and with the site's files elsewhere."""
        if self.path != HARNESS:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(self.program.encode())

    def do_POST(self) -> None:
        """Take what the program found."""
        self.found += json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
        self.done.set()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""


def open_pages(site: Path, browser: str) -> tuple[list[dict], list[str]]:
    """Return what each page measured, and the lines of the browser's console."""
    pages = [f"/{file.relative_to(site).as_posix()}" for file in sorted(site.rglob("*.html"))]
    program = PROGRAM.replace("WIDTHS", json.dumps(WIDTHS)).replace("PAGES", json.dumps(pages))
    found, done = [], threading.Event()
    handler = partial(Handler, program=program, found=found, done=done, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, tempfile.TemporaryDirectory() as profile:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--v=0"]
        command += [f"--user-data-dir={profile}", "--window-size=1400,1000", "--remote-debugging-port=0"]
        address = f"http://127.0.0.1:{server.server_port}{HARNESS}"
        with (
            tempfile.TemporaryFile("w+") as log,
            subprocess.Popen([*command, address], stderr=log, stdout=subprocess.DEVNULL) as process,
        ):
            finished = done.wait(TIMEOUT)
            process.terminate()
            process.wait(30)
            log.seek(0)
            console = [line.strip() for line in log if re.search(r":CONSOLE[:(]", line)]
        server.shutdown()
    if not finished:
        raise SystemExit(f"the browser opened {len(found)} of {len(pages)} pages in {TIMEOUT:.0f} seconds")
    return found, console


def main(site: Path) -> int:
    """Print what is wrong, and return how much that is."""
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"no browser: install one of {', '.join(BROWSERS)}, as Debian's package chromium")
    if not (site / "index.html").is_file():
        raise SystemExit(f"{site} holds no site: run `make docs` first")
    wrong = broken_links(site)
    found, console = open_pages(site, browser)
    for row in found:
        if row["wide"] > row["width"]:
            wrong.append(f"{row['page']}: {row['wide']} pixels wide in a window of {row['width']}")
        wrong += [f"{row['page']}: the picture {picture} does not show" for picture in row["hollow"]]
    wrong += [f"console: {line}" for line in console]
    print("\n".join(sorted(set(wrong))))
    print(f"{len(found)} openings of {len(found) // len(WIDTHS)} pages, {len(set(wrong))} faults")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if main(Path(sys.argv[1] if len(sys.argv) > 1 else "site")) else 0)
