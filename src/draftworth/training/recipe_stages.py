"""The sections of `recipe.toml` behind `[data]`: states, vocabulary, fit, eval, plan. Each field is described once."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from draftworth.models import FilePath, Strict

Layer = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Drafted = Annotated[int, Field(ge=1, le=32)]
AtATime = Annotated[int, Field(ge=1, le=4096)]


class StatesConfig(Strict):
    """Hidden states of the target, which the head learns from."""

    way: Literal["vllm", "transformers"] = "vllm"
    """Where they come from: `vllm`, a server with its `extract_hidden_states` method; or `transformers`, where there is
    no vLLM for the target."""
    url: str | None = None
    """A server that runs already, started with the flags that `draftworth train states --help` prints."""
    serve: bool = False
    """Whether Draftworth starts that server itself, with the installed engine, and ends it again."""
    layers: Annotated[tuple[Layer, ...], Field(strict=False)] | None = None
    """How many layers are applied in front of each auxiliary state, three as a rule. Default: 2, half of the layers,
    and all but three, as vLLM and speculators take them."""
    dtype: Literal["bf16", "fp8", "fp32"] = "bf16"
    """How a state is kept on disk. `fp8` halves the disk; `fp32` is for small targets on a CPU."""
    disk_gib: Annotated[float, Field(gt=0)] | None = None
    """Most GiB the states may take; checked before anything is started. Default: all but a tenth of what is free."""
    concurrency: Positive = 8
    """Requests at a time to the server."""

    @model_validator(mode="after")
    def _one_server(self) -> "StatesConfig":
        if self.url is not None and self.serve:
            raise ValueError("either a url or serve = true, not both")
        if self.layers is not None and len(set(self.layers)) != len(self.layers):
            raise ValueError("layers: the same layer twice; an engine would drop one of them and read the head wrongly")
        return self


class VocabConfig(Strict):
    """The draft's vocabulary: the most frequent tokens of the answers."""

    size: Positive | None = None
    """How many tokens. Default: 32,000, fewer where the target or the answers have fewer."""
    pad: bool = False
    """Whether a size above the number of different tokens in the answers is filled up with ids nobody wrote."""


class FitConfig(Strict):
    """Training of the head."""

    epochs: Positive = 10
    """How often every sample is seen, at most."""
    batch_tokens: Positive = 8192
    """Tokens of a packed batch, of each process."""
    lr: Annotated[float, Field(gt=0, lt=1)] = 1e-3
    """Highest learning rate."""
    optimizer: Literal["muon", "adamw"] = "muon"
    """The optimizer."""
    warmup: Annotated[float, Field(ge=0, le=0.5)] = 0.01
    """Share of the steps in which the learning rate rises."""
    ttt_steps: Annotated[int, Field(ge=1, le=8)] = 3
    """Steps of the training-time test: how many tokens deep the head learns to draft from its own states."""
    patience: Annotated[int, Field(ge=0)] = 3
    """Epochs without better walk acceptance on the held-out conversations after which training ends; 0: never."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it runs."""
    processes: Positive = 1
    """How many GPUs of this machine, by torchrun."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the weights and of the order of the samples."""


class EvalConfig(Strict):
    """Walk acceptance on held-out conversations."""

    k: Annotated[tuple[Drafted, ...], Field(strict=False, min_length=1)] = (1, 2, 3, 4, 5, 6, 7, 8)
    """How many tokens a step drafts; each is walked."""
    limit: Positive | None = None
    """At most so many held-out samples; default: all."""
    costs: FilePath | None = None
    """What `draftworth probe` wrote of the running baseline: what a step costs, so that a speed-up can be predicted.
    Relative to this file."""
    concurrency: Annotated[tuple[AtATime, ...], Field(strict=False, min_length=1)] = (1, 4)
    """Requests at a time that the speed-up is predicted for."""


class PlanConfig(Strict):
    """What the head must reach and what its training costs."""

    acceptance: Annotated[float, Field(ge=1)] | None = None
    """The acceptance length per step that pays; `draftworth predict --heads` says it."""
    predict: FilePath | None = None
    """What `draftworth predict --heads --json` printed, instead: the least acceptance length that pays is read from it.
    Relative to this file."""
    k: Drafted = 3
    """How many tokens the head will draft a step."""
    gpu: str = "H200"
    """The GPU it is trained on, as `draftworth costs gpus` lists them."""
    gpus: Positive = 1
    """How many of them."""
    price: Annotated[float, Field(gt=0)] | None = None
    """What an hour of one costs, in any currency."""
    tokens_per_second: Annotated[float, Field(gt=0)] | None = None
    """What the server that writes the answers anew generates, all requests together."""
    sample_tokens: Positive = 1000
    """Mean tokens of a sample, as long as the stage `data` has not run."""
