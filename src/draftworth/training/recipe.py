"""`recipe.toml`: everything a person says about training a head, each field described once (also in recipe_stages)."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from draftworth.models import FilePath, Strict
from draftworth.training.recipe_stages import EvalConfig, FitConfig, PlanConfig, Positive, StatesConfig, VocabConfig

__all__ = [
    "DataConfig",
    "EvalConfig",
    "FitConfig",
    "PlanConfig",
    "Recipe",
    "RegenerateConfig",
    "SourceConfig",
    "SourceFormat",
    "StatesConfig",
    "VocabConfig",
]

SourceFormat = Literal["trace", "chat", "dataset"]


class SourceConfig(Strict):
    """One file or folder with conversations."""

    path: FilePath
    """The file or folder; relative to this file."""
    format: SourceFormat | None = None
    """`trace`: recorded traffic as token ids. `chat`: JSON lines or Parquet with messages. `dataset`: a Hugging Face
    dataset folder (Arrow, Parquet or JSON lines). Default: recognised by its content."""
    split: str | None = None
    """Of a dataset folder, the files of this split."""
    name: str | None = None
    """What it is called in counts and reports. Default: the file's name."""
    category: str | None = None
    """The kind of work, for rows that tell none. Default: the source's name."""
    category_key: str = "category"
    """The column that tells the kind of work."""
    limit: Positive | None = None
    """At most so many conversations."""


class RegenerateConfig(Strict):
    """Answers written anew by the target over HTTP: a head learns what the target itself writes."""

    url: str
    """The target's server, with or without `/v1`."""
    model: str | None = None
    """The served model's name. Default: the first name the server lists."""
    samples: Annotated[int, Field(ge=1, le=64)] = 1
    """Answers a conversation."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    """Sampling temperature; that of the service is best."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Sampling: the smallest set of tokens with this probability."""
    max_tokens: Positive = 1024
    """Most tokens an answer may have."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 32
    """Requests at a time."""
    retries: Annotated[int, Field(ge=0, le=20)] = 4
    """How often a failed request is repeated, with growing pauses."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Seconds a request may take."""
    api_key_env: str | None = None
    """The environment variable that holds the server's API key."""
    states: bool = False
    """Whether the target's states on every answer are kept as it is written; the stage `states` then need not compute
    them. The server must extract states: `draftworth train states --help` prints its flags. `states.disk_gib` bounds
    them."""

    @model_validator(mode="after")
    def _samples_differ(self) -> "RegenerateConfig":
        if self.samples > 1 and self.temperature == 0:
            raise ValueError("samples: at temperature 0 all of them are the same; raise the temperature or take 1")
        return self


class DataConfig(Strict):
    """Conversations, and which of their tokens the head learns from."""

    sources: Annotated[tuple[SourceConfig, ...], Field(strict=False, min_length=1)]
    """Where they come from, one table each."""
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Share of the conversations of each source that is never trained on."""
    max_tokens: Annotated[int, Field(ge=2)] = 4096
    """Most tokens of a sample; longer ones are cut at the end."""
    thinking: bool = True
    """Whether reasoning is learned too, where the target wrote some."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the split by conversation and of the server's sampling."""
    per_prompt: Positive = 1
    """Most conversations that are kept with the same messages in front of the first answer; further ones are left out
    and counted. A sample that was written anew counts as its conversation's."""
    exclude: Annotated[tuple[FilePath, ...], Field(strict=False)] = ()
    """Files with prompts (text, JSON lines or Parquet) that must stay unseen, such as benchmarks: a conversation that
    shares 13 words in a row with one of them is left out. Relative to this file."""
    template_args: dict[str, Any] = {}
    """Further arguments of the chat template, such as `{ enable_thinking = false }`; as the service gives them."""
    regenerate: RegenerateConfig | None = None
    """Whether and how the answers are written anew."""


class Recipe(Strict):
    """A head and how it is trained."""

    target: FilePath
    """The folder of the model that the head drafts for, as the engine serves it; relative to this file."""
    revision: str | None = None
    """What the target's revision is called; only kept with the results."""
    out: FilePath | None = None
    """The run folder, where every stage keeps its results; relative to this file. Default: a folder beside this file,
    named as it is, without its ending, and `-run`."""
    data: DataConfig
    states: StatesConfig = StatesConfig()
    vocab: VocabConfig = VocabConfig()
    fit: FitConfig = FitConfig()
    eval: EvalConfig = EvalConfig()
    plan: PlanConfig = PlanConfig()

    @model_validator(mode="after")
    def _states_of_one_way(self) -> "Recipe":
        if self.captures and self.states.way != "vllm":
            raise ValueError('data.regenerate.states: states of a server want states.way = "vllm"')
        return self

    @property
    def captures(self) -> bool:
        """Whether states are kept while answers are written anew."""
        return self.data.regenerate is not None and self.data.regenerate.states

    @property
    def folder(self) -> Path:
        """The run folder; `recipe_file.load_recipe` has made it absolute."""
        assert self.out is not None
        return self.out
