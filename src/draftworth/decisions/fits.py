"""Whether a trial is of what an option is about: its arm's method and its model; and whether the option's gate held."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from draftworth.decisions.assumptions import same_service
from draftworth.decisions.base import Assumptions, Option
from draftworth.decisions.gates import evaluate
from draftworth.decisions.methods import family
from draftworth.errors import UsageError

if TYPE_CHECKING:
    from draftworth.decisions.known import Known


def methods_of(option: Option) -> tuple[str, ...]:
    """Return the methods whose trials decide an option; empty where it says none. Its title is no evidence of one."""
    return (option.decides.methods if option.decides else ()) or ((option.method,) if option.method else ())


def model_of(option: Option) -> str:
    """Return the model whose trials decide an option; empty where it says none."""
    return (option.decides.model if option.decides else "") or option.assumptions.model


def unfit(option: Option, arm: str, method: str, under: Assumptions) -> list[str]:
    """Return why a trial is of something else than an option, each as a clause; what it does not tell is no reason.

    Args:
        option: the option.
        arm: the arm's name.
        method: the arm's speculative method; empty where it is not known.
        under: what the arm was measured under.
    """
    clauses, methods, model = [], methods_of(option), model_of(option)
    if methods and method and family(method) not in map(family, methods):
        clauses.append(f"{arm} drafts by {method}, and trials of {' or '.join(methods)} decide it")
    if not same_service(Assumptions(model=model), Assumptions(model=under.model)):
        clauses.append(f"the trial is of {under.model}, and trials of {model} decide it")
    return clauses


def check_fits(option: Option, arm: str, method: str, under: Assumptions, although: str) -> list[str]:
    """Return what is to be remarked where a trial may decide an option.

    Args:
        option: the option.
        arm: the arm's name.
        method: the arm's speculative method; empty where it is not known.
        under: what the arm was measured under.
        although: why a trial of something else decides it all the same; empty: it does not.

    Raises:
        UsageError: the trial is of something else.
    """
    clauses, methods = unfit(option, arm, method, under), methods_of(option)
    if clauses and not although:
        raise UsageError(
            f"option {option.name}: {'; '.join(clauses)}; name another --option, or record the exception with "
            '--although "REASON"'
        )
    remarks = [f"not what decides {option.name}: {one}" for one in clauses]
    if not methods:
        remarks.append(
            'the option does not say which method decides it: give it decides = { methods = ["…"], model = "…" } in '
            "tree.toml"
        )
    elif not method:
        remarks.append(f"the trial does not tell the method of {arm}; trials of {' or '.join(methods)} decide it")
    return remarks


def gate_remarks(option: Option, known: "Known") -> Sequence[str]:
    """Return that an option's gate does not hold, where it does not or it is not known whether it does."""
    if option.gate is None:
        return ()
    found = evaluate(option.gate, option, known)
    if found.holds:
        return ()
    word = "does not hold" if found.holds is False else "is not known to hold"
    return (f"its gate {word}: {option.gate.words} {found.reason}",)
