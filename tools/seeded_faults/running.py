"""Run the test of each fault on a copy of the packages that carries it, in processes forked from one that is warm.

A fault is killed when its test fails an *assertion*. A test that passes, or that breaks down in another way (an import
error, an exception of the library), lets the fault survive. The same tests must pass on a copy that carries none.
"""

import gc
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from .fault import SOURCES, Fault, FaultError, seed

__all__ = ["Outcome", "run_faults"]

WORKERS = 2
# What the tests import, and none of ours: loaded once, before the forks.
PLUGINS = ["pytest_timeout", "_hypothesis_pytestplugin"]
PRELOAD = [
    *PLUGINS,
    "torch",
    "jaxtyping",
    "hypothesis.strategies",
    "torchvision",
    "lightning",
    "matplotlib.pyplot",
    "pandas",
]


@dataclass(frozen=True)
class Outcome:
    """What became of one fault: killed or not, why, and after how many seconds of the processor."""

    fault: Fault
    killed: bool
    reason: str
    seconds: float


@dataclass(eq=False)  # pytest keeps its plugins in a set
class Recorder:
    """A pytest plugin that notes how each test ended: by the type of the exception, not by its text."""

    passed: list[str] = field(default_factory=list)
    assertions: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        if call.excinfo is None:
            if call.when == "call":
                self.passed.append(item.nodeid)
        else:
            failed = call.when == "call" and is_failed_assertion(call.excinfo.value)
            (self.assertions if failed else self.other).append(f"{item.nodeid}: {first_line(call.excinfo.value)}")
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.other.append(f"{report.nodeid}: not collected: {str(report.longrepr)[-300:]}")


def is_failed_assertion(error: BaseException) -> bool:
    """Whether a test's own check said no, as opposed to the code under test breaking down."""
    if isinstance(error, BaseExceptionGroup):  # Hypothesis, where examples fail in several ways
        return all(is_failed_assertion(inner) for inner in error.exceptions)
    if isinstance(error, pytest.fail.Exception):  # a time-out is one of these too
        return str(error).startswith(("DID NOT RAISE", "DID NOT WARN"))
    return isinstance(error, AssertionError) or type(error).__name__ == "GradcheckError"


def first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {text[0]}"


def run_tests(root: Path, copy: Path, tests: Sequence[str]) -> Recorder:
    """Run the tests of the repository in this process, on the packages in `copy`."""
    sources = [str(copy / source) for source in SOURCES]
    others = [str(root / folder) for folder in (".", "tests", "reproduction/tests", "tools")]
    # A fault is to be found by a wrong value, not by the wrappers around every function.
    os.environ.update(PYTHONPATH=os.pathsep.join(sources), OMP_NUM_THREADS="1", ORTHONORM_TYPECHECK="0")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.path[:0] = sources
    # What the run without a fault has compiled serves all others.
    sys.dont_write_bytecode = False
    # pytest collects garbage several times; without what was there before the fork that takes a moment.
    gc.freeze()
    os.chdir(root)
    log = os.open(copy / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    recorder = Recorder()
    options = ["-q", "--tb=short", "--continue-on-collection-errors", "--timeout=60", "-p", "no:cacheprovider"]
    options += [word for plugin in PLUGINS for word in ("-p", plugin)]
    # Of packages that were imported before the fork, and whose assertions need no rewriting.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-o", "pythonpath=" + " ".join([*sources, *others])]
    pytest.main([*options, *tests], plugins=[recorder])
    check_imported(root, sources)
    if not (recorder.passed or recorder.assertions or recorder.other):
        recorder.other.append(f"no test ran: {(copy / 'output.txt').read_text()[-300:]}")
    return recorder


def check_imported(root: Path, sources: Sequence[str]) -> None:
    """Raise FaultError if a module of ours came from the checkout and not from the copy."""
    theirs = [str(root / source) + os.sep for source in SOURCES]
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(tuple(theirs)) and not file.startswith(tuple(sources)):
            raise FaultError(f"the tests imported {name} from {file} and not from the copy")


def copy_packages(start: Path, folder: Path) -> Path:
    """Copy the packages with their bytecode, which the first run on a copy has left there."""
    for source in SOURCES:
        if (start / source).is_dir():
            shutil.copytree(start / source, folder / source)
    return folder


def try_fault(root: Path, template: Path, fault: Fault) -> Outcome:
    """Run the test named for one fault on a copy that carries it."""
    with tempfile.TemporaryDirectory(prefix="seeded-fault-") as folder:
        copy = copy_packages(template, Path(folder).resolve())
        path, text = seed(copy, fault)
        (copy / path).write_text(text)
        result = run_tests(root, copy, [fault.test])
    if result.assertions:
        reason = result.assertions[0].partition("::")[2]
    elif result.other:
        reason = f"no assertion failed, but: {result.other[0]}"
    else:
        reason = "the named test passed"
    return Outcome(fault, bool(result.assertions), reason, time.process_time())


def check_unbroken(root: Path, template: Path, tests: Sequence[str]) -> None:
    """Raise FaultError unless each of the tests is there and passes without a fault."""
    result = run_tests(root, template, tests)
    if failed := result.assertions + result.other:
        raise FaultError("without a fault, named tests do not pass:\n  " + "\n  ".join(failed))
    # A parametrised test answers to its own name as well as to those of its cases.
    names = {name for passed in result.passed for name in (passed, passed.partition("[")[0])}
    if missing := [test for test in tests if test not in names]:
        raise FaultError(f"named tests that did not run: {', '.join(missing)}")


def run_faults(root: Path, faults: Sequence[Fault], report: Callable[[Outcome], None]) -> list[Outcome]:
    """Check the entries and the unbroken code, then try every fault, `WORKERS` at a time."""
    for fault in faults:
        seed(root, fault)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    with tempfile.TemporaryDirectory(prefix="seeded-faults-") as folder:
        template = copy_packages(root, Path(folder).resolve())
        with ProcessPoolExecutor(WORKERS, mp_context=context, max_tasks_per_child=1) as pool:
            tests = list(dict.fromkeys(fault.test for fault in faults))
            halves = [half for half in (tests[::2], tests[1::2]) if half]
            for done in [pool.submit(check_unbroken, root, template, half) for half in halves]:
                done.result()
            outcomes = []
            for running in [pool.submit(try_fault, root, template, fault) for fault in faults]:
                outcomes.append(running.result())
                report(outcomes[-1])
    return outcomes
