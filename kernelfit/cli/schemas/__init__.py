"""The JSON Schema of what each verb prints with ``--json``, one file a verb: ``VERB.json``."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def verbs_with_schema() -> tuple[str, ...]:
    """Return the verbs that have a schema.

    Returns
    -------
    tuple of str
        In alphabetical order.
    """
    folder = resources.files(__name__)
    return tuple(
        sorted(
            entry.name.removesuffix(".json")
            for entry in folder.iterdir()
            if entry.name.endswith(".json")
        )
    )


def schema_of(verb: str) -> dict[str, Any]:
    """Return the schema of a verb.

    Parameters
    ----------
    verb : str
        The verb.

    Returns
    -------
    dict
        JSON Schema, draft 2020-12.

    Raises
    ------
    InputError
        When there is no such verb; it lists them and names the nearest.
    """
    from kernelfit.cli.files import refuse
    from kernelfit.documents.problems import did_you_mean

    known = verbs_with_schema()
    if verb not in known:
        raise refuse(
            "--schema",
            "no such verb",
            got=verb,
            allowed=", ".join(known),
            hint=did_you_mean(verb, known),
        )
    text = resources.files(__name__).joinpath(f"{verb}.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
