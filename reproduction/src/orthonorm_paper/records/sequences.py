"""What the sequence experiments vary, and the loss of the best that remembers nothing."""

import math

MODELS = ("rnn", "lstm")
METHODS = ("recurrent-plain", "recurrent-start", "recurrent-torch", "recurrent-OLM", "recurrent-OLM-scale")
SEEDS = {"copying": (0, 1, 2), "rows-5k": (0, 1, 2, 3, 4)}


def memoryless_loss(dataset: str) -> float | None:
    """Loss of the best that remembers nothing on ``copying-T``: ``10 ln 8 / (T + 20)``; None for another data set.

    Examples:
        >>> round(memoryless_loss("copying-10"), 4), memoryless_loss("mnist-5k")
        (0.6931, None)
    """
    name, _, blanks = dataset.partition("-")
    return 10 * math.log(8) / (int(blanks) + 20) if name == "copying" else None
