"""Each published rule, broken once beside the set that keeps it."""

from __future__ import annotations

import pytest

from kernelfit.export.blis_check import validate_coefficient_set

GOOD = """\
kind: CoefficientSet
name: mine
coefficients:
  - gemm_eps_max_bf16:
      value: 0.9
      units: dimensionless
      method: measured
      fitted: true
      scope: {hardware: [h100], tp: [1, 2]}
      ci95: [0.85, 0.95]
      sources:
        - {kind: model, cite: "step logs", role: primary}
      rationale: fitted
      validated: itl
      unsupported: [ttft, e2e]
  - hbm_derate:
      value: 0.8
      units: dimensionless
      method: vendor_spec
      fitted: false
      scope: {hardware: [h100]}
      sources: [{kind: datasheet, cite: "vendor", role: supporting}]
      rationale: a derate
  - hbm_derate:
      name: hbm_derate
      value: 0.75
      units: dimensionless
      method: copied
      fitted: false
      scope: {hardware: [h200]}
      rationale: same memory
      copied_from: h100
      supersedes: an older one
  - cross_node_hop:
      value: 0
      units: us_per_hop
      method: not_charged
      fitted: false
      scope: {nodes_spanned: [2]}
      rationale: not modelled
"""

# what is replaced, by what, and words of the one problem that follows
BROKEN = [
    ("kind: CoefficientSet", "kind: Coefficients", "wrong kind"),
    ("name: mine", "name: ''", "the set's name"),
    ("name: mine\n", "", "the set's name"),
    ("name: mine", "name: mine\nextends: other", "unknown key in the set"),
    ("value: 0.9", "value: .nan", "a finite number"),
    ("value: 0.9", "value: .inf", "a finite number"),
    ("value: 0.9", "value: '0.9'", "a finite number"),
    ("value: 0.9", "value: true", "a finite number"),
    ("      ci95: [0.85, 0.95]\n", "      ci95: [0.95, 0.85]\n", "low above high"),
    ("ci95: [0.85, 0.95]", "ci95: [0.91, 0.95]", "does not contain the value"),
    ("ci95: [0.85, 0.95]", "ci95: [0.85, .inf]", "not finite"),
    ("ci95: [0.85, 0.95]", "ci95: [0.85]", "list of two numbers"),
    ("ci95: [0.85, 0.95]", "ci95: {low: 0.85, high: 0.95}", "list of two numbers"),
    ("value: 0.75", "value: 0", "needs method not_charged"),
    ("value: 0.75\n", "supersedes_: 1\n", "unknown key in entry"),
    ("      value: 0\n", "      value: 1\n", "not_charged needs a value of 0"),
    ("units: us_per_hop", "units: us", "units"),
    ("units: us_per_hop\n      ", "", "units"),
    ("method: measured", "method: fitted", "method"),
    ("      fitted: true\n", "", "fitted must be present"),
    ("fitted: true", "fitted: 'true'", "fitted must be present"),
    (
        "method: vendor_spec\n      fitted: false",
        "method: vendor_spec\n      fitted: true",
        "fitted is true with method vendor_spec",
    ),
    ("scope: {hardware: [h100], tp: [1, 2]}", "scope: {}", "an empty scope"),
    ("scope: {hardware: [h100], tp: [1, 2]}", "scope: {hardware: []}", "an empty scope"),
    ("scope: {hardware: [h100], tp: [1, 2]}", "scope: h100", "scope is a mapping"),
    ("      scope: {hardware: [h100], tp: [1, 2]}\n", "", "scope is a mapping"),
    ("tp: [1, 2]", "dtype: [bf16]", "unknown key in scope"),
    ("tp: [1, 2]", "tp: [1.5]", "scope.tp"),
    ("tp: [1, 2]", "tp: 2", "scope.tp"),
    ("hardware: [h100], tp", "hardware: [100], tp", "scope.hardware"),
    (
        'sources: [{kind: datasheet, cite: "vendor", role: supporting}]',
        "sources: []",
        "at least one citation",
    ),
    (
        '      sources: [{kind: datasheet, cite: "vendor", role: supporting}]\n',
        "",
        "at least one citation",
    ),
    ("kind: model, cite", "kind: trace, cite", "source kind"),
    ("role: primary", "role: main", "source role"),
    ('cite: "step logs"', 'cite: ""', "source cite"),
    ('cite: "step logs", role', 'cite: "step logs", url: x, role', "unknown key in a source"),
    ("      rationale: a derate\n", "", "rationale"),
    ("rationale: same memory\n", "validated: itl\n", "rationale"),
    ("      rationale: not modelled\n", "", "rationale"),
    ("      copied_from: h100\n", "", "copied_from"),
    ("supersedes: an older one", "supersedes: [x]", "supersedes"),
    ("validated: itl", "validated: {itl: 1}", "validated is neither"),
    ("unsupported: [ttft, e2e]", "unsupported: [1]", "unsupported is neither"),
    ("scope: {hardware: [h200]}", "scope: {hardware: [h100]}", "repeats a name and scope"),
    ("  - cross_node_hop:", "  - cross-node-hop:", "snake_case"),
    ("  - cross_node_hop:", "  - CrossNodeHop:", "snake_case"),
    (
        '      sources:\n        - {kind: model, cite: "step logs", role: primary}\n',
        "",
        "at least one citation",
    ),
    ("  - cross_node_hop:\n", "  - other: {}\n    cross_node_hop:\n", "a map with one key"),
]


def test_the_good_set_is_good() -> None:
    assert validate_coefficient_set(GOOD) == ()


@pytest.mark.parametrize(("old", "new", "words"), BROKEN)
def test_one_broken_rule_is_one_problem(old: str, new: str, words: str) -> None:
    assert GOOD.count(old) >= 1
    problems = validate_coefficient_set(GOOD.replace(old, new, 1), "set.yaml")
    assert any(words in problem.message or words in (problem.allowed or "") for problem in problems)
    # Where the value itself goes, its own rule breaks too.
    expected = 2 if new.startswith("supersedes_") else 1
    assert len(problems) == expected, [problem.render() for problem in problems]
    assert all(problem.file == "set.yaml" for problem in problems)
    assert all(problem.line is not None for problem in problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a coefficient set is a mapping"),
        ("- a\n- b\n", "a coefficient set is a mapping"),
        ("kind: CoefficientSet\nname: x\ncoefficients: []\n", "at least one entry"),
        ("kind: CoefficientSet\nname: x\n", "at least one entry"),
        ("kind: CoefficientSet\nname: x\ncoefficients: {a: {}}\n", "at least one entry"),
        ("kind: CoefficientSet\nname: x\ncoefficients: [a]\n", "a map with one key"),
        ("kind: CoefficientSet\nname: x\ncoefficients:\n  - a: 1\n", "not a mapping"),
        ("kind: CoefficientSet\nname: [\n", "not readable as YAML"),
        ("kind: CoefficientSet\nkind: CoefficientSet\nname: x\n", "not readable as YAML"),
    ],
)
def test_a_document_that_is_no_set(text: str, words: str) -> None:
    problems = validate_coefficient_set(text)
    assert len(problems) == 1
    assert words in problems[0].message


def test_the_place_of_a_problem() -> None:
    (problem,) = validate_coefficient_set(GOOD.replace("value: 0.75", "value: .nan"), "set.yaml")
    line = GOOD.splitlines().index("      value: 0.75") + 1
    assert (problem.line, problem.column) == (line, 7)
    assert problem.render().startswith(f"set.yaml:{line}:7: hbm_derate: value (got nan); allowed")


def test_all_problems_at_once_in_order() -> None:
    text = GOOD.replace("units: us_per_hop", "units: us").replace("kind: CoefficientSet", "kind: X")
    problems = validate_coefficient_set(text)
    assert [problem.line for problem in problems] == sorted(p.line or 0 for p in problems)
    assert len(problems) == 2


def test_the_order_within_a_scope_does_not_matter() -> None:
    text = GOOD.replace("scope: {hardware: [h200]}", "scope: {hardware: [h200, h100]}").replace(
        "scope: {nodes_spanned: [2]}\n      rationale: not modelled",
        "scope: {hardware: [h100, h200]}\n      rationale: not modelled",
    )
    assert validate_coefficient_set(text) == ()
    same = text.replace("  - cross_node_hop:", "  - hbm_derate:")
    (problem,) = validate_coefficient_set(same)
    assert "repeats a name and scope" in problem.message
