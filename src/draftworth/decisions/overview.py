"""The tree and a check of it as lines of text."""

from collections.abc import Iterator

from draftworth.decisions.check import Checked, OptionCheck


def tree_lines(checked: Checked) -> list[str]:
    """Return every option below its parent, with state and gate."""
    lines = [checked.title] if checked.title else []
    lines += [line for one in checked.options if one.parent is None for line in _branch(one, checked, 0)]
    if not checked.options:
        lines.append("The tree has no options yet: `draftworth decide TRIAL` begins one.")
    return lines + _rest(checked)


def _branch(one: OptionCheck, checked: Checked, depth: int) -> Iterator[str]:
    indent = "  " * depth
    where = f"  ({one.record})" if one.record else ""
    yield f"{indent}{one.option}  {one.state}  {one.title}{where}"
    if one.holds is not None:
        yield f"{indent}    gate: {one.gate} Holds: {one.holds.word}: {one.holds.reason}"
    for reason in one.reopen:
        yield f"{indent}    should be reopened: {reason}"
    for child in checked.options:
        if child.parent == one.option:
            yield from _branch(child, checked, depth + 1)


def check_lines(checked: Checked) -> list[str]:
    """Return what a check found, what should be reopened first."""
    lines = []
    for one in checked.options:
        lines += [f"Reopen {one.option} ({one.state}, {one.record}): {reason}" for reason in one.reopen]
    if not lines:
        lines.append("Nothing is to be reopened.")
    lines += [f"{one.option}: {remark}" for one in checked.options for remark in one.remarks]
    lines += [
        f"{one.option}: gate {one.holds.word}: {one.holds.reason}" for one in checked.options if one.holds is not None
    ]
    lines += [f"Written: {path}" for path in checked.written]
    return lines + _rest(checked)


def _rest(checked: Checked) -> list[str]:
    return [*(f"Record: {one}" for one in checked.history), *(f"Left out: {one}" for one in checked.left_out)]
