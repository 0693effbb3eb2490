from draftworth.engines.failing import SHELL, complaints, hint, is_killed, killed


def test_the_most_telling_reason_counts_and_of_equal_ones_the_last() -> None:
    ranks = {"a": 2, "b": 1, "c": 1, "d": 3}
    lines = ["a", "b", "x", "c", "d"]
    assert hint(lines, lambda lines, i: (ranks[lines[i]], f"<{lines[i]}>") if lines[i] in ranks else None) == "<c>"
    assert hint(lines, lambda _lines, _i: None) is None
    assert hint(["a" * 500], lambda lines, i: (0, lines[i])) == "a" * 400 + "…"


def test_a_process_that_the_kernel_ended_is_told() -> None:
    assert is_killed("Killed")
    assert killed("line 3: 7 Killed") is None
    assert killed("worker: Killed") == (
        0,
        "worker: Killed: the kernel ended the process, most often for want of memory",
    )


def test_a_shells_complaint_is_known() -> None:
    assert SHELL.fullmatch("bash: line 1: serve-it: command not found")
    assert not SHELL.fullmatch("serving")


def test_pydantics_complaints_are_joined() -> None:
    lines = [
        "1 validation error for X",
        "field",
        "  Value error, bad [type=x, input=y]",
        "    For further information …",
    ]
    assert complaints(lines, 1) == "field: bad"
    assert complaints(["a", "  b", "c", "  d", "e", "  f"], 0) == "a: b c: d"
