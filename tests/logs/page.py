"""``docs/logs.md`` from what the readers state and from the fixtures: ``python -m tests.logs.page``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from kernelfit.logs.registry import coverages
from tests.logs.forms import all_forms

PAGE = Path(__file__).resolve().parents[2] / "docs" / "logs.md"

HEAD = """\
# Logs that can be read

What each reader reads, by engine and version, what becomes of each form of line, and what the durations mean. The tables are
written by `python -m tests.logs.page` from what the readers state and from the fixtures in `tests/logs/forms`; a test holds them
together.

`kernelfit ingest LOG --reader NAME --out STORE` reads a log, or the folder with a `run.yaml` beside it names the reader. Without
either, a `.log` file is read by `vllm-log`, `.itl.csv` by `blis-trace`, and other tables by `table`.

## Rules that hold for every reader

* **No line is lost.** Lines read = steps + recognised + rejected; the counts are printed and stored. Lines about stretches of
  time go to the table `intervals`, facts of the start to the run (`startup_json`, and the pool); both count as recognised. A
  physical line that holds two records glued together counts twice.
* **Nothing private is kept.** No prompt, token id, host name or address enters the store. A rejected line is kept as its form:
  words of the engines' own templates and punctuation; every other letter is `x`, every digit `0`. The line number leads back to
  the log.
* **Nothing is invented.** A count or a time that the log does not state is null. A line that was cut is rejected, even where what
  is left of it would parse. A step without a duration of its own is not given one.
* **A new run begins** where the engine starts again, the number of the step falls, another process prints, or the clock goes back
  by more than ten seconds (a new year or a new day is no such step).
* **Contradictions are errors.** What the log states of its start must agree with `run.yaml`; a flag settles it.
* **Wraps are taken off**: colours, JSON records, the container runtime's JSON or stamp, compose and Ray prefixes, terminal boxes.
"""

TIMING = """
## What durations mean

A fit takes `device`, `cycle` and `step`. `wait` and `dispatch` are only a part of a step and are refused, with the reason in the
column `fit_refused_reason` of the run.

| reader | engine | version | when | timing | fitted | why |
|---|---|---|---|---|---|---|
"""

FORMS = """
## Forms

Each form has fixtures built from the engine's template, with rows derived by hand; those in italics are awkward: cut, glued,
wrapped, restarted, damaged or easily misread.

| reader | form | engine | versions | line | becomes | fixtures |
|---|---|---|---|---|---|---|
"""

FOOT = """
## Details by reader

* `vllm-log`: `Iteration(...)` needs `--enable-logging-iteration-details`. A context request has no output token yet; generation
  tokens include drafts, and after a preemption the recomputed prompt, so rows with more generation tokens than requests are marked
  `resume_or_spec` and their decode counts are unknown. Logs of 0.6 to 0.13 print no step; they give intervals and facts.
* `blis-trace`: `NAME.itl.csv` with `NAME.csv` and, if there is one, `NAME.yaml` beside it. State `enable_prefix_caching: false` and
  `max_num_batched_tokens` in the pool of `run.yaml` to keep steps in which prompts ran; without them only steps whose requests all
  decode are certain.
* `sglang-log`: a prefill line is a step; a decode line is one step in forty. Neither has a duration. Where the lines allow it the
  mean of a decode step is in `intervals.step_s`.
* `sglang-fpm`: state `engine_version`. SGLang publishes over ZMQ; this writes the file:

  ```python
  import msgspec
  import zmq

  socket = zmq.Context().socket(zmq.SUB)
  socket.connect("tcp://127.0.0.1:5557")
  socket.subscribe(b"")
  with open("fpm.jsonl", "wb") as file:
      while True:
          *_, record = socket.recv_multipart()
          file.write(msgspec.json.encode(msgspec.msgpack.decode(record)) + b"\\n")
  ```

* `trtllm-log`: a row gets the device time that the next line of the same rank prints. State `dp` in the pool when several ranks
  schedule for themselves; otherwise only the lowest rank is kept. `num_generation_tokens` includes the padding of captured
  graphs: rows where it exceeds the requests are marked `padded_or_spec`.
* `dynamo-fpm`, `otel-steps` and `table` are described in [tables.md](tables.md), the recorder's files in [recording.md](recording.md).

## Adding a reader

A package adds a reader with an entry point of the group `kernelfit.readers`; kernelfit's own readers cannot be replaced.

```toml
[project.entry-points."kernelfit.readers"]
my-engine = "my_package.reader:MyReader"
```

The class takes no arguments and has what `kernelfit.logs.source.Reader` asks for: `name` (the word that `--reader` and `run.yaml`
use), `version` (raised whenever its rows would change), `needs_facts`, `files(source)` (what its digest covers) and
`read(source, facts)`, which returns one `ParsedRun` per life of the engine:

```python
import numpy as np

from kernelfit.logs.columns import Counts, ParsedRun, Reject, Requests, make_steps
from kernelfit.logs.lines import read_lines


class MyReader:
    name = "my-engine"
    version = 1
    needs_facts = False

    def files(self, source):
        return (source.path,)

    def read(self, source, facts):
        rows, rejects, lines = [], [], 0
        for lines, line in read_lines(source.path):
            try:
                index, requests, took_ms = line.split()
                rows.append((int(index), int(requests), float(took_ms) * 1e-3))
            except ValueError:
                text = line.decode("utf-8", "replace")
                rejects.append(Reject(source.path.name, lines, "not three numbers", text))
        index, requests, duration_s = np.array(rows).reshape(-1, 3).T
        columns = {"step": index, "requests": requests, "duration_s": duration_s}
        columns["scheduled_tokens"] = requests
        return (
            ParsedRun(
                steps=make_steps(len(rows), columns),
                requests=Requests.none(),
                rejects=tuple(rejects),
                counts=Counts(lines, len(rows), 0, len(rejects)),
                timing="step",
                clock="none",
                composition="aggregated",
                stated={"reader": self.name, "engine": "my-engine"},
            ),
        )
```

Columns that are left out are unknown. `timing` is a promise: say `wait` and give `fit_refused_reason` where the time is only a part
of the step or its meaning is not known. The text of a `Reject` is reduced to its form by itself; reasons must not quote the line.
"""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def timing_rows() -> Iterator[str]:
    for coverage in coverages():
        for rule in coverage.timing:
            fitted = "yes" if rule.fitted else "no"
            timing = f"`{rule.timing}`" if " " not in rule.timing else rule.timing
            cells = (rule.engine, rule.versions, rule.mode, timing, fitted, rule.why)
            yield f"| `{coverage.reader}` | " + " | ".join(map(_cell, cells)) + " |"


def form_rows() -> Iterator[str]:
    fixtures: dict[tuple[str, str], list[str]] = {}
    for form in all_forms():
        for cover in form.covers:
            name = f"*{form.name}*" if form.awkward else form.name
            fixtures.setdefault((form.reader, cover), []).append(name)
    for coverage in coverages():
        for line in coverage.forms:
            shown = ", ".join(fixtures.get((coverage.reader, line.form), ["built in its tests"]))
            cells = (line.form, line.engine, line.versions, line.what, line.becomes, shown)
            yield f"| `{coverage.reader}` | " + " | ".join(map(_cell, cells)) + " |"


def page() -> str:
    sources = "".join(f"* `{c.reader}`: {c.source}\n" for c in coverages())
    return (
        f"{HEAD}\n## Readers\n\n{sources}"
        + TIMING
        + "".join(f"{row}\n" for row in timing_rows())
        + FORMS
        + "".join(f"{row}\n" for row in form_rows())
        + FOOT
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
