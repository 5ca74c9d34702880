"""Every verb prints JSON by a schema that the package carries."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from kernelfit.cli.schemas import schema_of, verbs_with_schema
from tests.cli.golden import check_words
from tests.cli.run import VERBS, kernelfit


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_schema(verb: str) -> None:
    assert verb in verbs_with_schema(), (
        f"kernelfit {verb} --json has no schema: add kernelfit/cli/schemas/{verb}.json (JSON "
        'Schema 2020-12; "properties" with "schema": {"const": "kernelfit.' + verb + '/1"}); '
        "tests/cli/run.py then holds every --json of the tests against it"
    )


def test_no_schema_is_left_of_a_verb_that_went() -> None:
    assert set(verbs_with_schema()) - set(VERBS) == set()


@pytest.mark.parametrize("verb", sorted(verbs_with_schema()))
def test_schemas_are_schemas_and_name_their_version(verb: str) -> None:
    schema = schema_of(verb)
    jsonschema.Draft202012Validator.check_schema(schema)
    bodies = schema.get("anyOf", [schema])
    for body in bodies:
        assert body["properties"]["schema"]["const"].startswith("kernelfit.")
        assert "schema" in body["required"]
    assert kernelfit("show", "--schema", verb).code == 0


@pytest.mark.parametrize("verb", sorted(verbs_with_schema()))
def test_schemas_are_what_was_reviewed(verb: str, request: pytest.FixtureRequest) -> None:
    """The keys and types of a schema in short, so that a change of a format is seen."""
    lines = sorted(_short(schema_of(verb), ""))
    check_words(f"schema-{verb}.txt", "\n".join(lines) + "\n", request)


def _short(node: dict[str, Any], path: str) -> set[str]:
    kind = node.get("type", "one of" if "enum" in node else "any")
    words = "|".join(kind) if isinstance(kind, list) else str(kind)
    found = {f"{path or '.'}: {node.get('const', words)}"}
    for each in node.get("anyOf", ()):
        found |= _short(each, path)
    for key, value in node.get("properties", {}).items():
        mark = "" if key in node.get("required", ()) else "?"
        found |= _short(value, f"{path}.{key}{mark}")
    for key, sign in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(node.get(key), dict):
            found |= _short(node[key], path + sign)
    return found


def test_a_schema_refuses_what_breaks_it() -> None:
    validator = jsonschema.Draft202012Validator(schema_of("env"))
    said = json.loads(kernelfit("env", "--json").out)
    assert validator.is_valid(said)
    assert not validator.is_valid({**said, "cpus": "two"})
    assert not validator.is_valid({**said, "schema": "kernelfit.env/2"})
    assert not validator.is_valid({k: v for k, v in said.items() if k != "libraries"})


def test_an_unknown_verb_has_no_schema_and_a_hint() -> None:
    outcome = kernelfit("show", "--schema", "explian")
    assert (outcome.code, outcome.out) == (2, "")
    assert "no such verb (got explian)" in outcome.err
    assert "did you mean explain?" in outcome.err
