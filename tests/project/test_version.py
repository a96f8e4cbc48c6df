import tomllib
from pathlib import Path

import orthonorm

ROOT = Path(__file__).parents[2]


def test_the_version_is_the_packages():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert orthonorm.__version__ == project["version"]
