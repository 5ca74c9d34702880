"""The verb that writes a kernel for other programs, lists them, and checks what was written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelfit.cli.options import DryRun
from kernelfit.cli.screen import Screen
from kernelfit.cli.verb import CHECK_SAID_NO, OK, verb

if TYPE_CHECKING:
    from kernelfit.export.base import Files, Target


def register(app: typer.Typer) -> None:
    """Add the verb of this module.

    Parameters
    ----------
    app : typer.Typer
        The command line.
    """
    verb(
        app,
        "export",
        summary="Write a frozen kernel in the form that another program loads.",
        example="kernelfit export blis calib/kernels/NAME.json --out exports",
        details="--list names the targets, what each can and cannot express, and what --set may "
        "choose. What a kernel holds and the target cannot is said on standard error. Without "
        "--out the first file goes to standard output. --check makes exports again and compares "
        "them byte for byte.",
    )(export)


def export(
    screen: Screen,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET KERNEL | FILE...",
            help="A target and a frozen kernel, calib/kernels/NAME.json; files with --check.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder to write into.")
    ] = None,
    chosen: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the target; repeatable."),
    ] = None,
    listing: Annotated[
        bool, typer.Option("--list", help="List targets and what each can express.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Make the exports FILE... again and compare them.")
    ] = False,
    dry_run: DryRun = False,
) -> int:
    """Export a kernel.

    Parameters
    ----------
    screen : Screen
        Where the words go.
    words : list of str, optional
        The target and the kernel's file; with ``check``, files that were exported.
    out : pathlib.Path, optional
        The folder to write into; None writes the first file to standard output.
    chosen : list of str, optional
        Settings of the target.
    listing : bool
        List the targets instead.
    check : bool
        Make exports again and compare them instead.
    dry_run : bool
        Write nothing.

    Returns
    -------
    int
        Exit status; 1 where a checked export differs.
    """
    if listing:
        return _list(screen)
    given = words or []
    if check and given:
        return _check(screen, [Path(word) for word in given])
    if check or len(given) != 2:
        raise typer.BadParameter("give TARGET and KERNEL, or --list, or --check and FILE...")
    return _write(screen, given[0], Path(given[1]), out, chosen or (), dry_run=dry_run)


def _target(name: str) -> Target:
    from kernelfit.cli.files import refuse
    from kernelfit.documents.problems import did_you_mean
    from kernelfit.export.registry import TARGETS, find_target

    names = [known.name for known in TARGETS]
    if name not in names:
        raise refuse(
            "TARGET",
            "no such export",
            got=name,
            allowed=", ".join(names),
            hint=did_you_mean(name, names),
        )
    return find_target(name)


def _settings(chosen: Sequence[str]) -> dict[str, str]:
    from kernelfit.cli.files import refuse

    settings: dict[str, str] = {}
    for text in chosen:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise refuse("--set", "is no setting", got=text, allowed="NAME=VALUE")
        if name in settings:
            raise refuse("--set", "a setting given twice", got=name)
        settings[name] = value
    return settings


def _write(
    screen: Screen,
    name: str,
    kernel_file: Path,
    out: Path | None,
    chosen: Sequence[str],
    *,
    dry_run: bool,
) -> int:
    from kernelfit import __version__
    from kernelfit.cli.files import read_kernel
    from kernelfit.documents.canonical import write_atomic
    from kernelfit.export.manifest import manifest, place_of_kernel
    from kernelfit.export.registry import options_for

    target = _target(name)
    options = options_for(target, kernel_file.name, __version__, _settings(chosen))
    kernel = read_kernel(kernel_file)
    files = _made(target, target.export(kernel, options))
    missing = target.missing(kernel, options)
    text = None
    if out is None:
        text = next((file.data for file in files if isinstance(file.data, str)), None)
    else:
        place = place_of_kernel(kernel_file, out)
        files = (*files, manifest(target, kernel, options, files, place))
        for file in files:
            path = out / file.path
            if not dry_run:
                write_atomic(path, file.content)
            said = "would write" if dry_run else "wrote"
            screen.note(f"{said} {path} ({len(file.content):,} bytes)")
    if screen.json:
        screen.document(
            {
                "schema": "kernelfit.export/2",
                "target": target.name,
                "kernel": kernel.digest,
                "files": [] if out is None else [str(out / file.path) for file in files],
                "text": text,
                "not_expressed": [{"name": n.name, "reason": n.reason} for n in missing],
            }
        )
        return OK
    for item in missing:
        screen.note(f"not expressed: {item.name}: {item.reason}")
    if text is not None:
        screen.text(text)
    return OK


def _made(target: Target, files: Files) -> Files:
    """Return the files where the target would load them."""
    problems = target.check(files)
    if problems:
        raise RuntimeError(f"{target.name} would not load its own export: {'; '.join(problems)}")
    return files


def _list(screen: Screen) -> int:
    from kernelfit.export.registry import TARGETS

    if screen.json:
        screen.document(
            {
                "schema": "kernelfit.export-targets/1",
                "targets": [
                    {
                        "name": t.name,
                        "title": t.title,
                        "source": t.source,
                        "holds": list(t.holds),
                        "lacks": list(t.lacks),
                        "settings": [
                            {"name": s.name, "default": s.default, "meaning": s.meaning}
                            for s in t.settings
                        ],
                    }
                    for t in TARGETS
                ],
            }
        )
        return OK
    for target in TARGETS:
        screen.line(f"{target.name}: {target.title}")
        for word in target.holds:
            screen.line(f"  + {word}")
        for word in target.lacks:
            screen.line(f"  - {word}")
        for each in target.settings:
            default = f" (default {each.default})" if each.default else ""
            screen.line(f"  --set {each.name}=...: {each.meaning}{default}")
        screen.line(f"  source: {target.source}")
        screen.line()
    return OK


def _check(screen: Screen, paths: Sequence[Path]) -> int:
    found = [(path, _checked(path)) for path in dict.fromkeys(map(_manifest_of, paths))]
    if screen.json:
        screen.document(
            {
                "schema": "kernelfit.export-check/1",
                "exports": [
                    {"manifest": str(path), "same": not wrong, "differences": list(wrong)}
                    for path, wrong in found
                ],
            }
        )
    else:
        for path, wrong in found:
            screen.line(f"{path}: {'differs' if wrong else 'the same, made again'}")
            for words in wrong:
                screen.line(f"  {words}")
    return CHECK_SAID_NO if any(wrong for _, wrong in found) else OK


def _manifest_of(path: Path) -> Path:
    """Return the manifest that a file is, or that speaks of it."""
    from kernelfit.cli.files import refuse
    from kernelfit.export.manifest import ENDING, listed

    if path.name.endswith(ENDING):
        return path
    for folder in path.absolute().parents:
        for place in sorted(folder.glob(f"*{ENDING}")):
            try:
                document = json.loads(place.read_text(encoding="utf-8"))
            except ValueError:
                continue
            if any((folder / each) == path.absolute() for each in listed(document)):
                above = list(path.absolute().parents).index(folder)
                near = path.parents[above] if above < len(path.parents) else folder
                return near / place.name
    raise refuse(path, "no *.export.json beside it or above speaks of it")


def _checked(place: Path) -> tuple[str, ...]:
    """Make the export of a manifest again, and say what differs."""
    from kernelfit import __version__
    from kernelfit.cli.files import read_kernel, read_object, refuse
    from kernelfit.export.manifest import SCHEMA, differences, manifest
    from kernelfit.export.registry import options_for

    document: dict[str, Any] = read_object(place)
    if document.get("schema") != SCHEMA:
        raise refuse(
            place, "states another schema", got=repr(document.get("schema")), allowed=SCHEMA
        )
    absent = [key for key in ("target", "kernel_file", "settings") if key not in document]
    if absent or not isinstance(document["settings"], dict):
        raise refuse(place, f"lacks {', '.join(absent) or 'settings'}")
    kernel_file = place.parent / str(document["kernel_file"])
    kernel = read_kernel(kernel_file)
    target = _target(str(document["target"]))
    options = options_for(target, kernel_file.name, __version__, document["settings"])
    files = _made(target, target.export(kernel, options))
    stated = manifest(target, kernel, options, files, str(document["kernel_file"]))
    return differences(place.parent, (*files, stated))
