"""How a search's settings share the error of its verdicts: by the order in which they were started.

A search looks at what was measured before it chooses what to start next, and ends when it likes. So the share of a
setting must not depend on what came after it. The j-th of at most N that are started has

    alpha_j = alpha (N + 1) / (N j (j + 1)),

which adds up to alpha over all N (1 / (j (j + 1)) telescopes to N / (N + 1)). Given everything measured before it, a
setting is called faster or slower wrongly with at most alpha_j, so any of them is with at most alpha, however the
search went (alpha spending over a sequence of hypotheses: Foster and Stine 2008, JRSS B 70:429, without reward). The
first settings, which the predictions have put there, keep most of it.
"""


def divisor(number: int, candidates: int) -> float:
    """Return what the error of a search is divided by for one of its settings.

    Args:
        number: which one it was to be started, from 1.
        candidates: how many could have been.

    Raises:
        ValueError: `number` is none of them.
    """
    if not 1 <= number <= candidates:
        raise ValueError(f"setting {number} is none of {candidates}")
    return number * (number + 1) * candidates / (candidates + 1)
