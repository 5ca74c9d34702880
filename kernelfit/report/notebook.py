"""A result as a piece of HTML for a notebook: the verdict and its tables, no script."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup, escape

from kernelfit.report.page import environment
from kernelfit.report.select import one_gpu
from kernelfit.report.tables_checks import errors, splits
from kernelfit.report.tables_fit import coefficients
from kernelfit.report.verdict import verdict


def result_html(result: Mapping[str, Any]) -> str:
    """Set the verdict, coefficients and errors of every GPU type.

    Parameters
    ----------
    result : mapping
        The result document of a fit.

    Returns
    -------
    str
        HTML that needs nothing else and can stand in a page of another's.
    """
    draw = environment().get_template("parts.html.j2").module.draw  # type: ignore[attr-defined]
    parts = []
    for calibration in result["calibrations"]:
        view = one_gpu(result, str(calibration["gpu"]))
        whole = [row for row in view["validation"] if row["phase"] == "all"]
        tables = [coefficients(view)]
        if splits(view):
            tables.append(errors({**view, "validation": whole}))
        parts.append(
            Markup("<section class='kernelfit'><h3>{}</h3><p>{}</p>{}</section>").format(
                view["gpu"],
                verdict(view)["sentence"],
                Markup("").join(draw(table) for table in tables),
            )
        )
    return str(Markup("").join(parts)) or str(escape("No GPU type was calibrated."))
