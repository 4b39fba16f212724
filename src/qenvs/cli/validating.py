"""`qenvs validate`: the physics of the built-in models, or of your own, as checks."""

import time
from typing import Annotated, Any

import typer

from qenvs.cli import options, output

ModelPath = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PKG.MOD:ATTR",
        help="Check this model instead: an instance, a class or a function that makes one.",
    ),
]
ReferencePath = Annotated[
    str | None,
    typer.Option(
        "--reference",
        metavar="PKG.MOD:ATTR",
        help="Compare it with this model, or with a function H(controls), term by term.",
    ),
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print every check as Markdown.")]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("validate")(validate)


def validate(
    model: ModelPath = None,
    reference: ReferencePath = None,
    as_json: options.AsJson = False,
    as_markdown: AsMarkdown = False,
    quiet: options.Quiet = False,
) -> None:
    """Check the physics: closed forms, QuTiP, brute force, conservation laws, gradients."""
    if as_json and as_markdown:
        raise options.UsageError("give --json or --markdown, not both")
    checks = _checks(model, reference)
    from qenvs.validation import run_checks

    start = time.perf_counter()
    with output.Progress("validate", len(checks), quiet) as progress:
        results = run_checks(checks, progress.update)
    seconds = time.perf_counter() - start
    if as_json:
        output.show_json(_record(results, seconds))
    elif as_markdown:
        print(markdown(results, seconds))
    else:
        _show(results, seconds)
    if not all(result.passed for result in results):
        raise typer.Exit(1)


def _checks(model: str | None, reference: str | None) -> list[Any]:
    """The checks to run; a usage error for a path that leads nowhere."""
    from qenvs.validation import built_in_checks
    from qenvs.validation.loading import load_model, load_reference
    from qenvs.validation.own import model_checks

    if model is None:
        if reference is not None:
            raise options.UsageError("--reference needs --model, which is compared with it")
        return built_in_checks()
    try:
        other = None if reference is None else load_reference(reference)
        return model_checks(load_model(model), other)
    except (ValueError, TypeError, ImportError) as error:
        raise options.UsageError(str(error)) from None


def summary(results: list[Any]) -> list[tuple[str, int, int, Any]]:
    """(category, checks, passed, result of the largest error/tolerance) of every category."""
    from qenvs.validation import CATEGORIES

    rows = []
    for category in CATEGORIES:
        own = [result for result in results if result.category == category]
        if own:
            worst = max(own, key=lambda result: (not result.passed, result.ratio))
            rows.append((category, len(own), sum(r.passed for r in own), worst))
    return rows


def _record(results: list[Any], seconds: float) -> dict[str, Any]:
    categories = {
        category: {"checks": n, "passed": passed, "worst_ratio": _number(worst.ratio)}
        for category, n, passed, worst in summary(results)
    }
    return {
        "ok": all(result.passed for result in results),
        "checks": len(results),
        "passed": sum(result.passed for result in results),
        "seconds": round(seconds, 1),
        "categories": categories,
        "results": [
            {**r._asdict(), "error": _number(r.error), "ratio": _number(r.ratio)} for r in results
        ],
    }


def _number(value: float) -> float | None:
    """A number that JSON knows: None for infinity and NaN."""
    return value if abs(value) < float("inf") else None


def _show(results: list[Any], seconds: float) -> None:
    rows = [
        (category, f"{passed}/{n}", f"{worst.ratio:.2g}", f"{worst.model}: {worst.name}")
        for category, n, passed, worst in summary(results)
    ]
    output.show_table(("category", "passed", "error/tolerance", "worst check"), rows)
    failed = [result for result in results if not result.passed]
    if failed:
        output.show_heading("Failed")
        for r in failed:
            output.show_text(f"{r.category}, {r.model}: {r.name}", "  ")
            found = f"error {r.error:.2g}, tolerance {r.tolerance:.2g}"
            output.show_text("; ".join(filter(None, [found, r.detail])), "    ")
        print()
    output.show_text(_conclusion(results, seconds))


def _conclusion(results: list[Any], seconds: float) -> str:
    failed = sum(not result.passed for result in results)
    verdict = f"{failed} of {len(results)} checks failed" if failed else "every check passed"
    return f"{len(results)} checks in {seconds:.0f} s: {verdict}."


def markdown(results: list[Any], seconds: float) -> str:
    """A report with the categories, then every check."""
    lines = ["# Validation", "", _conclusion(results, seconds), ""]
    lines += _markdown_row("category", "checks", "passed", "worst error/tolerance")
    lines += _markdown_row(*["---"] * 4)
    for category, n, passed, worst in summary(results):
        lines += _markdown_row(category, n, passed, f"{worst.ratio:.2g}")
    lines += ["", *_markdown_row("category", "model", "check", "error", "tolerance", "passed")]
    lines += _markdown_row(*["---"] * 6)
    for r in results:
        passed = "yes" if r.passed else f"no: {r.detail}" if r.detail else "no"
        numbers = f"{r.error:.2g}", f"{r.tolerance:.2g}"
        lines += _markdown_row(r.category, r.model, r.name, *numbers, passed)
    return "\n".join(lines)


def _markdown_row(*cells: Any) -> list[str]:
    escaped = (" ".join(str(cell).replace("|", "\\|").split()) for cell in cells)
    return [f"| {' | '.join(escaped)} |"]
