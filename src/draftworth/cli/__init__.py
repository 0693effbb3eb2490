"""The command line: one file a verb, each parses, calls and prints, nothing else."""

import errno
import sys
from collections.abc import Sequence

from cyclopts import App
from cyclopts.exceptions import (
    CoercionError,
    CycloptsError,
    MissingArgumentError,
    RepeatArgumentError,
    UnusedCliTokensError,
)

import draftworth
from draftworth.errors import (
    EXIT_CTRL_C,
    EXIT_DONE,
    EXIT_UNEXPECTED,
    EXIT_USAGE,
    DraftworthError,
    NotRestoredError,
)

STDIN = "<standard input>"
"""What stands for `-` once arguments are parsed."""

_KINDS: dict[object, str] = {
    int: "must be a whole number",
    float: "must be a number",
    bool: "must be true or false, or have no value",
}

_VERBS = {
    "bench": ("draftworth.cli.bench:bench", "Measure a server that runs, under one load or a sweep of them."),
    "demo": ("draftworth.cli.demo:demo", "A whole trial on a small real vLLM on this machine's CPU."),
    "doctor": ("draftworth.cli.doctor:doctor", "What is there, and what planned arms will meet, before anything runs."),
    "engine": ("draftworth.cli.engine:app", "Engines to try with: install, list."),
    "head": ("draftworth.cli.head:app", "Heads and draft models, from their files alone: check."),
    "metrics": ("draftworth.cli.metrics:metrics", "What a server, a saved page or a log tells of speculation."),
    "trace": ("draftworth.cli.trace:app", "Recorded traffic as token ids: record, proxy, import, stats, redact."),
    "replay": ("draftworth.cli.replay:replay", "What a drafter's settings would have had accepted on a trace."),
    "probe": ("draftworth.cli.probe:probe", "What a step of a running baseline costs, by tokens and concurrency."),
    "costs": ("draftworth.cli.costs:app", "A costs file, or a step on paper from a model's shape and a GPU."),
    "predict": ("draftworth.cli.predict:predict", "The speed-up of every setting, before any reload."),
    "decide": ("draftworth.cli.decide:decide", "A decision record from a trial, or what others reported."),
    "decisions": ("draftworth.cli.decisions:app", "The options tree: states, gates, what to reopen, what is next."),
    "explain": ("draftworth.cli.explain:explain", "Where the milliseconds between the arms of a trial went."),
    "profile": ("draftworth.cli.profile:app", "Decode time by class, out of a profiler's trace; two compared."),
    "report": ("draftworth.cli.report:app", "A trial as a page that stands on its own; several side by side."),
    "train": (
        "draftworth.cli.train:app",
        "An EAGLE-3 head from your own traffic: plan, data, states, vocab, fit, eval, export.",
    ),
    "host": ("draftworth.cli.host:app", "Machines that trials are driven on over SSH: check, install."),
    "service": ("draftworth.cli.service:app", "A good systemd unit for an engine's command."),
    "trial": ("draftworth.cli.trial:app", "Trials on a service: plan, run, attach, show, restore, adopt, …"),
}


def make_app() -> App:
    """Return the command line. Verbs are imported when they are used, so that help is quick."""
    app = App(
        name="draftworth",
        help="Is the draft worth it? Speculative decoding, measured and decided on your own LLM service.",
        version=draftworth.__version__,
        help_format="plaintext",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
    )
    for name, (place, about) in _VERBS.items():
        app.command(place, name=name, help=about)
    app.command("draftworth.cli.agent:agent", name="agent", show=False)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; with the codes listed in errors.py."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run the command line. Returns the exit code; prints one line for an expected failure."""
    try:
        words = [STDIN if word == "-" else word for word in arguments]  # else taken for an option without a name
        result = make_app()(words, exit_on_error=False, print_error=False)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - nothing may end in a bare traceback
        return _failed(error)
    return result if isinstance(result, int) else EXIT_DONE


def _failed(error: BaseException) -> int:
    """Tell what went wrong. Returns the exit code."""
    match error:
        case CycloptsError():
            _complain(" ".join(_wrong_call(error).split()))
            return EXIT_USAGE
        case DraftworthError():
            _complain("\n  ".join([str(error), *(error.commands if isinstance(error, NotRestoredError) else ())]))
            return error.exit_code
        case BrokenPipeError():
            # Whoever read the output has gone; nothing is wrong.
            sys.stderr.close()
            return EXIT_DONE
        case PermissionError() | OSError(errno=errno.ENOSPC | errno.EIO | errno.EDQUOT):
            whose = "; it is another user's: run this as them (`sudo -E`)" if isinstance(error, PermissionError) else ""
            _complain(f"{error.filename or 'output'} cannot be read or written: {error.strerror}{whose}")
            return EXIT_USAGE
        case KeyboardInterrupt():
            _complain("interrupted")
            return EXIT_CTRL_C
    return _crash(error)


def _wrong_call(error: CycloptsError) -> str:
    """Return what is wrong with the words of a call, and what belongs there."""
    match error:
        case MissingArgumentError(argument=argument, keyword=given) if argument is not None:
            about = (argument.parameter.help or "").rstrip(".")
            said = f"{given} needs a value" if given else f"{argument.name} is missing"
            _, mark, meant = str(error).partition(" Did you mean ")
            return f"{said}: {about}{'.' if mark else ''}{mark}{meant}{_help(error)}"
        case UnusedCliTokensError(unused_tokens=words):
            some = ", ".join(map(repr, words or ()))
            many = "is one too many" if len(words or ()) == 1 else "are too many"
            return f"{_taken(error)}: {some} {many}{_help(error)}"
        case CoercionError(token=token, argument=argument, target_type=kind) if token is not None and kind in _KINDS:
            name = token.keyword or (argument.name if argument is not None else "a value")
            return f"{name}: {_KINDS[kind]}, not {token.value!r}"
        case RepeatArgumentError(token=token):
            return f"{token.keyword} is given more than once"
    return str(error)


def _taken(error: CycloptsError) -> str:
    """Return which words without a flag a verb takes."""
    import inspect  # noqa: PLC0415 - lazy: only here

    parameters = inspect.signature(error.target).parameters.values() if error.target else ()
    names = [one.name.strip("_").upper() for one in parameters if one.kind is one.POSITIONAL_ONLY]
    if not names:
        return "this verb takes only flags"
    return f"one {names[0]} only" if len(names) == 1 else f"only {' and '.join(names)}"


def _help(error: CycloptsError) -> str:
    return f" (see `draftworth {' '.join([*(error.command_chain or ()), '--help'])}`)"


def _complain(text: str) -> None:
    print(f"draftworth: {text}", file=sys.stderr)


def _crash(error: BaseException) -> int:
    import platform  # noqa: PLC0415 - lazy: only here
    import traceback  # noqa: PLC0415 - lazy: only here

    _complain(f"unexpected error, a bug in Draftworth: {type(error).__name__}: {error}")
    print(
        f"Please report it with this text:\n```\ndraftworth {draftworth.__version__}, Python "
        f"{platform.python_version()}, {platform.platform()}\n{''.join(traceback.format_exception(error))}```",
        file=sys.stderr,
    )
    return EXIT_UNEXPECTED
