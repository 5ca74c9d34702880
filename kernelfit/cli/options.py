"""Options that several verbs share, said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[
    Path,
    typer.Option("--out", metavar="DIR", help="Folder that receives calib/ and the trace store."),
]
Calib = Annotated[
    Path | None,
    typer.Option(
        "--calib",
        metavar="DIR",
        help="Folder with chips/ and models/; without it ./calib, else the package's own.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be written; write nothing.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of every resampling.")]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME", help="The chip, where a run does not say.")
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The model document or config.json of the runs."),
]
Dtype = Annotated[
    str | None, typer.Option("--dtype", metavar="NAME", help="Data type the engine ran with.")
]
Engine = Annotated[
    str | None, typer.Option("--engine", metavar="NAME", help="The engine that wrote the logs.")
]
EngineVersion = Annotated[
    str | None, typer.Option("--engine-version", metavar="VERSION", help="Its version.")
]
Reader = Annotated[
    str | None, typer.Option("--reader", metavar="NAME", help="The reader for the logs.")
]
Tp = Annotated[int | None, typer.Option("--tp", metavar="N", min=1, help="Tensor-parallel width.")]
Pp = Annotated[
    int | None, typer.Option("--pp", metavar="N", min=1, help="Pipeline-parallel width.")
]
Dp = Annotated[int | None, typer.Option("--dp", metavar="N", min=1, help="Data-parallel width.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=1,
        help="Processes that read logs; without it one per core where the logs are large.",
    ),
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="ADDRESS",
        help="Dask scheduler whose workers read the logs, for example tcp://host:8786.",
    ),
]
