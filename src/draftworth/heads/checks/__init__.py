"""The registry: everything that is looked at, in the order of the report."""

from draftworth.heads.checks import (
    architecture,
    auxiliary,
    embeddings,
    keys,
    origin,
    positions,
    quantisation,
    tokenizer,
    values,
    vocabulary,
    widths,
)
from draftworth.heads.subject import Check

CHECKS: tuple[Check, ...] = (
    *architecture.CHECKS,
    *keys.CHECKS,
    *widths.CHECKS,
    *auxiliary.CHECKS,
    *vocabulary.CHECKS,
    *tokenizer.CHECKS,
    *embeddings.CHECKS,
    *values.CHECKS,
    *positions.CHECKS,
    *quantisation.CHECKS,
    *origin.CHECKS,
)
"""Every check, in the order of the report."""
