"""Base classes of every structure that is written to a file or read from one."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """Input from a person: unknown fields and values of another type are errors; nothing is converted.

    A whole number is taken where a number with a fraction could stand. TOML and JSON have neither tuples nor paths:
    fields of those kinds are declared with `Words` and `FilePath`.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, strict=True, allow_inf_nan=False
    )


class Frozen(BaseModel):
    """Part of a record: immutable; unknown fields of a later version are kept out, never fatal."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)


Words = Annotated[tuple[str, ...], Field(strict=False)]
"""Texts, written as a list."""
FilePath = Annotated[Path, Field(strict=False)]
"""A path, written as text."""
