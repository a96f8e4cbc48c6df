"""Break the library on purpose, one fault at a time, and require that the test named for it fails.

    python tools/seeded_faults.py [WORDS ...]    # only those whose name or file contains each word

A fault is killed when a named test fails an *assertion* on a copy of src/ that carries it. A test
that passes, or that breaks down in another way (an import error, an exception of the library), lets
the fault survive. The same tests must pass on a copy that carries none.
"""

import json
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from seeded_faults_child import run_pytest
from seeded_faults_list import FAULTS, Fault

# A fault's process is forked from one that has imported the heavy packages, and none of ours, once.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "torchvision", "lightning", "matplotlib.pyplot", "pandas"])

HERE = Path(__file__).resolve().parent
WORKERS = 2
TIMEOUT = 300.0


class FaultError(Exception):
    """The list, or the run itself, is wrong: nothing can be said about the tests."""


@dataclass(frozen=True)
class Outcome:
    """What became of one fault: killed or not, why, and after how many seconds."""

    name: str
    killed: bool
    reason: str
    seconds: float


@dataclass(frozen=True)
class Project:
    """Where the package and its tests lie."""

    root: Path
    package: str

    def check(self, fault: Fault) -> None:
        """Raise FaultError unless the fault says one place that is there, and what tests it."""
        path = self.root / "src" / fault.file
        if not path.is_file():
            raise FaultError(f"fault {fault.name!r}: there is no src/{fault.file}")
        count = path.read_text().count(fault.old)
        if count != 1:
            raise FaultError(
                f"fault {fault.name!r}: its old text occurs {count} times in src/{fault.file}, "
                f"and must occur once: {fault.old!r}"
            )
        if not fault.tests:
            raise FaultError(f"fault {fault.name!r}: no test is named to kill it")

    @contextmanager
    def copy(self, fault: Fault | None) -> Iterator[Path]:
        """A temporary copy of src/, with the fault in it."""
        with tempfile.TemporaryDirectory(prefix="seeded-fault-") as folder:
            source = Path(folder).resolve() / "src"
            ignore = shutil.ignore_patterns("__pycache__")
            shutil.copytree(self.root / "src", source, ignore=ignore)
            if fault is not None:
                path = source / fault.file
                path.write_text(path.read_text().replace(fault.old, fault.new))
            yield source

    def run(self, source: Path, tests: Sequence[str]) -> dict:
        """Run the tests on the package in `source`; the recorder's report."""
        report = source.parent / "report.json"
        environment = {
            "PYTHONPATH": os.pathsep.join([str(source), str(HERE)]),
            "OMP_NUM_THREADS": "1",
            # A fault is to be found by a wrong value, not by the wrappers around every function.
            "ORTHONORM_TYPECHECK": "0",
            "SEEDED_FAULT_PACKAGE": self.package,
            "SEEDED_FAULT_REPORT": str(report),
        }
        plugins = ["-p", "seeded_faults_plugin", "-p", "no:cacheprovider", "-p", "no:xdist"]
        # Of packages that were imported before the fork, and whose assertions need no rewriting.
        plugins += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        log = source.parent / "output.txt"
        process = FORKS.Process(
            target=run_pytest, args=(["-q", *plugins, *tests], environment, [source, HERE], self.root, log)
        )
        process.start()
        process.join(TIMEOUT)
        if process.is_alive():
            process.kill()
            process.join()
            return {"other": [f"still running after {TIMEOUT:.0f} seconds"], "assertions": []}
        output = log.read_text()[-2000:] if log.is_file() else ""
        if not report.is_file():
            return {"other": [f"pytest did not start: {output[-300:]}"], "assertions": []}
        result = json.loads(report.read_text()) | {"output": output}
        imported = result["imported"]
        if imported is not None and not Path(imported).resolve().is_relative_to(source):
            raise FaultError(f"the tests imported {imported} and not the copy in {source}")
        if imported is None and result["passed"]:
            raise FaultError(f"no test imported {self.package}: {', '.join(tests)}")
        return result


def check_baseline(project: Project, faults: Sequence[Fault]) -> int:
    """Run every named test without a fault; how many there were, FaultError if one did not pass."""
    tests = list(dict.fromkeys(test for fault in faults for test in fault.tests))
    with project.copy(None) as source:
        result = project.run(source, tests)
    if result["assertions"] or result["other"] or not result["passed"]:
        failed = "\n  ".join(result["assertions"] + result["other"])
        output = result.get("output", "")
        raise FaultError(f"without a fault, the named tests do not pass:\n  {failed}\n{output}")
    # A parametrised test answers to its own name as well as to those of its cases.
    names = {name for passed in result["passed"] for name in (passed, passed.partition("[")[0])}
    missing = [test for test in tests if test not in names]
    if missing:
        raise FaultError(f"named tests that did not run: {', '.join(missing)}")
    return len(result["passed"])


def try_fault(project: Project, fault: Fault) -> Outcome:
    """Run the tests named for one fault on a copy that carries it."""
    start = time.perf_counter()
    with project.copy(fault) as source:
        result = project.run(source, fault.tests)
    killed = bool(result["assertions"])
    if killed:
        reason = result["assertions"][0].partition("::")[2]
    elif result["other"]:
        reason = f"no assertion failed, but: {result['other'][0]}"
    else:
        reason = "the named tests passed"
    return Outcome(fault.name, killed, reason, time.perf_counter() - start)


def run_faults(
    project: Project,
    faults: Sequence[Fault],
    report: Callable[[Outcome], None],
) -> list[Outcome]:
    """Check the list and the unbroken library, then try every fault, `WORKERS` at a time."""
    for fault in faults:
        project.check(fault)
    check_baseline(project, faults)
    outcomes = []
    with ThreadPoolExecutor(WORKERS) as pool:
        for outcome in pool.map(lambda fault: try_fault(project, fault), faults):
            report(outcome)
            outcomes.append(outcome)
    return outcomes


def print_outcome(outcome: Outcome) -> None:
    verdict = "killed" if outcome.killed else "SURVIVED"
    reason = " ".join(outcome.reason.split())
    shown = reason if not outcome.killed or len(reason) < 100 else f"{reason[:97]}..."
    print(f"{verdict:8}  {outcome.seconds:5.1f} s  {outcome.name}\n{'':19}{shown}", flush=True)


def main(words: Sequence[str]) -> int:
    faults = [fault for fault in FAULTS if all(word in f"{fault.name} {fault.file}" for word in words)]
    if not faults:
        print(f"no fault has all of these words in its name and file: {' '.join(words)}", file=sys.stderr)
        return 2
    try:
        outcomes = run_faults(Project(HERE.parent, "orthonorm"), faults, print_outcome)
    except FaultError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    survived = sum(not outcome.killed for outcome in outcomes)
    print(f"seeded faults: {len(outcomes) - survived} killed, {survived} survived")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
