"""Base classes of every structure that is written to a file or read from one."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """Input from a person: unknown fields are errors, values keep their type."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Frozen(BaseModel):
    """Part of a record: immutable; unknown fields of a later version are kept out, never fatal."""

    model_config = ConfigDict(extra="ignore", frozen=True, use_attribute_docstrings=True)
