"""Options of the command line that several commands share, and those of `run`, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Results = Annotated[Path, Option(help="Folder of the results. Each experiment has a folder of its own in it.")]
Jobs = Annotated[int, Option(help="Number of runs at the same time, each in a process of its own.")]
Only = Annotated[
    list[str] | None,
    Option(
        metavar="FIELD=VALUE,...",
        help="Take only the runs with these values, such as method=OLM,plain. Repeat it for more fields.",
    ),
]
Recorded = Annotated[str, Argument(metavar="NAME", help="Name of an experiment with records.")]

Name = Annotated[str, Argument(metavar="NAME", help="Name of an experiment, as `orthonorm-paper list` shows it.")]
Threads = Annotated[int, Option(help="Number of CPU threads of each run.")]
Dask = Annotated[
    str | None,
    Option(metavar="ADDRESS", help="Address of the scheduler of a Dask cluster to run on, such as tcp://host:8786."),
]
Device = Annotated[str, Option(help="Where to train: auto, cpu or cuda.")]
Devices = Annotated[int, Option(help="Number of devices on each node. Each batch is divided among all of them.")]
Nodes = Annotated[int, Option(help="Number of machines. Start the command on each, with torchrun or srun.")]
Strategy = Annotated[str, Option(help="How devices share the work: auto, ddp, or fsdp, which shards the weights.")]
Precision = Annotated[
    str | None,
    Option(help="Precision of training, such as bf16-mixed. The experiment is then called NAME-PRECISION."),
]
Workers = Annotated[int, Option(help="Number of processes that read images, for each device.")]
ChannelsLast = Annotated[bool, Option("--channels-last", help="Use the memory format channels_last in convolutions.")]
CheckpointMinutes = Annotated[
    float | None,
    Option(help="Minutes between two checkpoints in an epoch. The default is 0.5, or 10 for images read from files."),
]
Data = Annotated[
    Path | None,
    Option(help="Folder with the files of the data sets, by default `data`. Pass `synthetic` to run NAME-synthetic."),
]
Minutes = Annotated[float | None, Option(help="Save and stop after so many minutes. The same command continues.")]
LearningRates = Annotated[
    str | None,
    Option(
        metavar="RATE,...",
        help="Learning rates, instead of the experiment's own. The experiment then gets another name.",
    ),
]
Epochs = Annotated[
    int | None, Option(help="Number of epochs, instead of the experiment's own. The schedule is stretched.")
]
Seeds = Annotated[int | None, Option(help="Number of seeds, instead of the experiment's own. They count from 0.")]
DryRun = Annotated[
    bool, Option("--dry-run", help="Print the runs that would start, and an estimate of their time. Run nothing.")
]
