"""Where OLM loses, from the records, and when to take another way."""

from collections.abc import Callable, Mapping
from typing import Any

from orthonorm_paper.reports.claims.rule import FAILS, HOLDS, lower

from .summary import Summary
from .ways import WAYS

__all__ = ["OURS", "guidance"]

OURS = "OLM, centred"
# Largest |W W^T - I| of what counts as orthogonal in float32: it passes the exact ways, and not landing.
_EXACT = 1e-5
# Share of OLM's step below which a step counts as shorter: less is noise of the times.
_QUICKER = 0.9

Found = Mapping[tuple[str, str], Summary]
Measured = Mapping[tuple[str, str], Mapping[str, Any]]


def guidance(found: Found, measured: Measured, titles: Mapping[str, str]) -> list[str]:
    """The lines of the section on when to take another way than OLM."""
    lines = ["## When to take another way than OLM", ""]
    for question, advice, answer in _QUESTIONS:
        lines += [f"**{question}** {advice}", ""]
        for problem, title in titles.items():
            if (problem, OURS) in found:
                names = [way for way in WAYS if (problem, way) in found and way != OURS]
                better = [way for way in names if answer(found, measured, problem, way)]
                lines.append(f"- {title}: {'; '.join(better) or 'none'} (of {len(names)} that ran).")
            else:
                lines.append(f"- {title}: OLM has not run.")
        lines.append("")
    return lines


def _lower(found: Found, problem: str, way: str) -> str:
    return lower(found[problem, way].test_errors, found[problem, OURS].test_errors).answer


def _more_accurate(found: Found, _: Measured, problem: str, way: str) -> bool:
    return _lower(found, problem, way) == HOLDS


def _not_less_accurate_and_quicker(found: Found, measured: Measured, problem: str, way: str) -> bool:
    seconds = measured[problem, way]["seconds a step"], measured[problem, OURS]["seconds a step"]
    return _lower(found, problem, way) != FAILS and seconds[0] < _QUICKER * seconds[1]


def _as_exact_and_quicker(found: Found, measured: Measured, problem: str, way: str) -> bool:
    exact = found[problem, way].orthogonality_error < _EXACT
    return exact and _not_less_accurate_and_quicker(found, measured, problem, way)


def _inexact_and_quicker(found: Found, measured: Measured, problem: str, way: str) -> bool:
    exact = found[problem, way].orthogonality_error < _EXACT
    return not exact and _not_less_accurate_and_quicker(found, measured, problem, way)


_QUESTIONS: tuple[tuple[str, str, Callable[[Found, Measured, str, str], bool]], ...] = (
    (
        "Is test error all that counts?",
        "These ways end at a lower test error than OLM by the rule. Take one of them.",
        _more_accurate,
    ),
    (
        "Must the weights be orthogonal, and is time short?",
        f"These ways are orthogonal to {_EXACT:g} throughout, their step is at least 10% shorter than OLM's, and "
        "no higher test error is shown. Take one of them if you can use its optimizer; OLM works with every "
        "optimizer.",
        _as_exact_and_quicker,
    ),
    (
        "Can the weights do without the constraint?",
        "These ways are not orthogonal, their step is at least 10% shorter, and no higher test error is shown. "
        "Take one of them unless something else asks for orthogonal weights, such as a Lipschitz bound.",
        _inexact_and_quicker,
    ),
)
