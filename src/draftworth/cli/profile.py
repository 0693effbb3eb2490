"""`draftworth profile`: decode time by class, out of a trace of a profiler, and what differs between two."""

import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from draftworth.errors import EXIT_DONE, UsageError

if TYPE_CHECKING:
    from draftworth.models import Frozen

app = App(name="profile", help="Decode time by class, out of a profiler's trace.", help_format="markdown")

Json = Annotated[
    bool, Parameter(name="--json", negative="", help="One JSON document on standard output, nothing else there.")
]
Patterns = Annotated[
    Path | None,
    Parameter(name="--kernels", help="A TOML file of patterns put ahead of Draftworth's: `[[kernel]]` or `[[op]]`."),
]


@app.command
def read(
    *files: Annotated[
        Path,
        Parameter(
            name="FILE",
            help="A trace of vLLM's, SGLang's or PyTorch's profiler (`.json`, `.json.gz`) or an nsys export "
            "(`.sqlite`); several are ranks of one run, a folder its newest run.",
        ),
    ],
    kernels: Patterns = None,
    steps: Annotated[int | None, Parameter(help="Decode steps, where the trace does not tell them.")] = None,
    tokens: Annotated[
        float | None,
        Parameter(help="Output tokens of the whole profile, less one for each request, where it does not tell them."),
    ] = None,
    top: Annotated[int, Parameter(help="Names that are told: of what was not recognised; above 5, of each class.")] = 5,
    as_json: Json = False,
) -> int:
    """Show where decode time went: collectives, experts, attention, other matrix work, sampling, idle, host.

    Time outside of decode steps is left out where the trace has the engine's marks; how it was told is said.

    Exits 0 when read, also in part (the notes say so), 1 where it is no profile, has no decode, where files are not
    ranks of one run or --tokens are not possible.
    """
    from draftworth.profiles.read import read_profile  # noqa: PLC0415 - lazy
    from draftworth.reports.profile import lines  # noqa: PLC0415 - lazy

    if not files:
        raise UsageError("which profile? name a trace, or the folder vLLM's profiler wrote to")
    _check("--steps", steps)
    _check("--tokens", tokens)
    _check("--top", top)
    found = read_profile(files, kernels=kernels, steps=steps, tokens=tokens, strict=True)
    _print(found, None if as_json else lines(found, most=top))
    return EXIT_DONE


@app.command
def compare(
    base: Annotated[Path, Parameter(help="A trace without speculation, or the folder of its ranks.")],
    variant: Annotated[Path, Parameter(help="A trace with it.")],
    /,
    *,
    kernels: Patterns = None,
    steps: Annotated[
        str | None, Parameter(help="Decode steps of each where not told, `BASE,VARIANT`; one number for both.")
    ] = None,
    tokens: Annotated[
        str | None,
        Parameter(help="Output tokens of each whole profile, less one a request, `BASE,VARIANT`; one number for both."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show what a decode step and an output token cost in two profiles, class by class, and the differences.

    Intervals (95 %) are over the steps of the two runs, from 20 steps on; another start may differ by more.

    Exits 0 when both were read, 1 where one is no profile, has no decode, or --tokens are not possible.
    """
    from draftworth.profiles.compare import compare as compared  # noqa: PLC0415 - lazy
    from draftworth.profiles.read import read_profile  # noqa: PLC0415 - lazy
    from draftworth.reports.profile import compared_lines  # noqa: PLC0415 - lazy

    counts, emitted = _two("--steps", steps), _two("--tokens", tokens)
    for one in counts:
        if one is not None and not one.is_integer():
            raise UsageError(f"--steps: must be a whole number, not {one:g}")
    profiles = [
        read_profile([path], kernels=kernels, steps=None if many is None else int(many), tokens=of, strict=True)
        for path, many, of in zip((base, variant), counts, emitted, strict=True)
    ]
    found = compared(profiles[0], profiles[1])
    _print(found, None if as_json else compared_lines(found))
    return EXIT_DONE


def _two(flag: str, text: str | None) -> tuple[float | None, float | None]:
    if text is None:
        return None, None
    words = text.split(",")
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if len(numbers) not in {1, 2}:
        raise UsageError(f"{flag}: must be one number, or two as BASE,VARIANT, not {text!r}")
    for one in numbers:
        _check(flag, one)
    return numbers[0], numbers[-1]


def _check(flag: str, value: float | None) -> None:
    if value is not None and not 1 <= value < float("inf"):
        raise UsageError(f"{flag}: must be at least 1, not {value:g}")


def _print(found: "Frozen", text: Sequence[str] | None) -> None:
    with suppress(BrokenPipeError):  # whoever read the output has gone
        if text is None:
            document: dict[str, Any] = found.model_dump(mode="json")
            print(json.dumps(document, indent=1, allow_nan=False))
        else:
            print("\n".join(text))
        sys.stdout.flush()
