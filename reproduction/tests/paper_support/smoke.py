"""A smoke size of every experiment: one run of each method, of one epoch of two small steps."""

import dataclasses

from orthonorm_paper.experiments import EXPERIMENTS
from orthonorm_paper.records.run import Run, Scalar

# Streamed images are in test_streaming.py, and the many generated sequences in test_sequences.py.
NAMES = [name for name in EXPERIMENTS if not name.startswith("imagenet") and name != "copying"]
SMALLEST: dict[str, dict[str, Scalar]] = {
    "mlp": {"hidden_layers": 2, "width": 12},
    "pie-mlp": {"width": 12},
    "vgg": {"width": 0.05},
    "inception-cifar": {"width": 0.05},
    "wide-resnet": {"depth": 10, "width": 1},
    "preresnet-cifar": {"depth": 11},
    "rnn": {"width": 4},
    "lstm": {"width": 4},
}


def smoke(name: str) -> list[Run]:
    """One run of each method as the experiment has it, and one on each data set: one epoch of two small steps."""
    kept: dict[object, Run] = {}
    for run in EXPERIMENTS[name].runs():
        batch_norm = run.model_arguments.get("batch_norm", False)
        kept.setdefault((run.model, run.method, run.method_args, run.optimizer, batch_norm), run)
    for run in EXPERIMENTS[name].runs():
        kept.setdefault(run.dataset, run)
    return list(dict.fromkeys(map(shrink, kept.values())))


def shrink(run: Run) -> Run:
    arguments = run.model_arguments | SMALLEST[run.model]
    lr = min(run.lr, 0.05)
    return dataclasses.replace(run, model_args=arguments, lr=lr, epochs=1, batch_size=7, seed=0)
