"""A pytest plugin that writes how each test failed: the type of the exception, not its text.

It is loaded into the run of one fault (`-p seeded_faults_plugin`), stops that run at the first
failed assertion, and leaves its report in the file that SEEDED_FAULT_REPORT names.
"""

import json
import os
import sys
from pathlib import Path

import pytest


class Recorder:
    """Collects the tests that passed, failed by an assertion, or failed in any other way."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.passed: list[str] = []
        self.assertions: list[str] = []
        self.other: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo):
        report = yield
        if call.excinfo is None:
            if call.when == "call":
                self.passed.append(item.nodeid)
        elif call.when == "call" and is_failed_assertion(call.excinfo.value):
            self.assertions.append(f"{item.nodeid}: {first_line(call.excinfo.value)}")
            self.session.shouldstop = "an assertion failed"
        else:
            self.other.append(f"{item.nodeid}: {first_line(call.excinfo.value)}")
        return report

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.other.append(f"{report.nodeid}: not collected: {str(report.longrepr)[-300:]}")

    def pytest_sessionfinish(self) -> None:
        module = sys.modules.get(os.environ["SEEDED_FAULT_PACKAGE"])
        report = {
            "imported": getattr(module, "__file__", None),
            "passed": self.passed,
            "assertions": self.assertions,
            "other": self.other,
        }
        Path(os.environ["SEEDED_FAULT_REPORT"]).write_text(json.dumps(report))


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


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.pluginmanager.register(Recorder(session), "seeded-fault-recorder")
