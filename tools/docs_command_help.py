"""Hook of MkDocs: a line `<!-- help: COMMAND -->` becomes what `COMMAND --help` prints, which is never out of date."""

import os
import re
import subprocess
import sys
from pathlib import Path

MARK = re.compile(r"^<!-- help: (.+) -->$", re.MULTILINE)
# As wide as a listing of a page is.
COLUMNS = "88"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Replace every mark of a page."""
    return MARK.sub(lambda found: f"```text\n{_help(found[1].split())}\n```", markdown)


def _help(command: list[str]) -> str:
    program = Path(sys.executable).with_name(command[0])
    environment = {**os.environ, "COLUMNS": COLUMNS, "TERM": "dumb", "NO_COLOR": "1"}
    shown = subprocess.run(
        [program, *command[1:], "--help"], env=environment, capture_output=True, text=True, check=True
    )
    return "\n".join(line.rstrip() for line in shown.stdout.strip().splitlines())
