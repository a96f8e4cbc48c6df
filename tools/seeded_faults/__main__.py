"""The command: `python -m seeded_faults [WORDS ...]` tries those faults whose name or place contains each word."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from seeded_faults.fault import FaultError
from seeded_faults.library import LIBRARY
from seeded_faults.reproduction import REPRODUCTION
from seeded_faults.running import Outcome, run_faults

ROOT = Path(__file__).resolve().parents[2]


def print_outcome(outcome: Outcome) -> None:
    verdict = "killed" if outcome.killed else "SURVIVED"
    reason = " ".join(outcome.reason.split())
    shown = reason if not outcome.killed or len(reason) < 100 else f"{reason[:97]}..."
    print(f"{verdict:8}  {outcome.seconds:5.1f} s  {outcome.fault.name}\n{'':19}{shown}", flush=True)


def main(words: Sequence[str]) -> int:
    faults = [f for f in (*LIBRARY, *REPRODUCTION) if all(word in f"{f.name} {f.where}" for word in words)]
    if not faults:
        print(f"no fault has all of these words in its name and place: {' '.join(words)}", file=sys.stderr)
        return 2
    start = time.perf_counter()
    try:
        outcomes = run_faults(ROOT, faults, print_outcome)
    except FaultError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    survived = sum(not outcome.killed for outcome in outcomes)
    wall, busy = time.perf_counter() - start, sum(outcome.seconds for outcome in outcomes)
    print(f"seeded faults: {len(outcomes) - survived} killed, {survived} survived; {wall:.0f} s, {busy:.0f} s of work")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
