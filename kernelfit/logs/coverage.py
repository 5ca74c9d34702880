"""What a reader says about itself: the forms it reads, and what their durations mean."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogForm:
    """One form of log lines that a reader covers.

    Attributes
    ----------
    form : str
        Short name, unique among the forms of its reader.
    engine : str
        The engine that writes it.
    versions : str
        Versions of the engine that write it, as a range for people.
    becomes : str
        ``steps``, ``requests``, ``intervals``, ``facts`` or ``recognised``: where the
        line's content goes.
    what : str
        What the line looks like, without values.
    """

    form: str
    engine: str
    versions: str
    becomes: str
    what: str


@dataclass(frozen=True, slots=True)
class TimingRule:
    """What durations of a reader's steps mean in one mode of an engine.

    Attributes
    ----------
    engine : str
        The engine.
    versions : str
        Its versions, as a range for people.
    mode : str
        When the rule applies.
    timing : str
        A name from ``kernelfit.logs.columns.TIMINGS``.
    fitted : bool
        Whether a fit takes the durations.
    why : str
        What is measured, and why a fit refuses it where it does.
    """

    engine: str
    versions: str
    mode: str
    timing: str
    fitted: bool
    why: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one reader covers.

    Attributes
    ----------
    reader : str
        Its name in the registry.
    source : str
        What kind of file it reads.
    forms : tuple of LogForm
        The forms of lines.
    timing : tuple of TimingRule
        What the durations mean, by engine, version and mode.
    """

    reader: str
    source: str
    forms: tuple[LogForm, ...]
    timing: tuple[TimingRule, ...]
