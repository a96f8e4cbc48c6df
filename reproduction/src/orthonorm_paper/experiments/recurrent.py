"""Beyond the paper: orthogonal recurrent weights."""

from __future__ import annotations

from .experiment import Experiment
from .sequences import copying, rows_5k

ENTRIES = (
    Experiment(
        "copying",
        "Orthogonal recurrent weights: letters to recall (RNN, LSTM)",
        "copying problem (generated), 10 letters after 10 blanks; 20 epochs of 100 steps, Adam, 3 seeds",
        copying,
    ),
    Experiment(
        "rows-5k",
        "Orthogonal recurrent weights: digits read row by row (RNN, LSTM)",
        "5,000 real MNIST digits (4,000 to train), 32 rows each; 10 epochs of 40 steps, Adam, 3 seeds",
        rows_5k,
    ),
)
