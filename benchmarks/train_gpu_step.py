"""The stage `step` of benchmarks/train_gpu.py: speculators' training step against its floor, part by part.

Parts of a compiled forward are told by differences: with one, two and three steps of the training-time test, and with
and without the loss. Beside it stand leaner variants on the same weights and batches, each with its loss. The floor is
the larger of operations over this GPU's measured rate of bf16 products and bytes over its measured copying.
"""

import itertools
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.train_gpu_floor import BF16_DENSE_TFLOPS, MEMORY_TB_S, STEPS, floor

from benchmarks import train_gpu_lean as lean
from draftworth.training.workers.on_the_fly import Frozen, Loaders


def measure(
    target: Path,
    train: Path,
    maps: Path,
    layers: Sequence[int],
    *,
    sizes: Sequence[int],
    device: str,
    repeats: int,
    limit_s: float,
    out: Path,
) -> dict[str, Any]:
    """Measure; what is done is written after each part, so that a limit cuts off only what was not begun.

    Args:
        target: the target.
        train: the samples.
        maps: the folder of the vocabulary's maps.
        layers: the auxiliary states.
        sizes: packed tokens of a batch.
        device: `cuda` or `cpu`.
        repeats: of each timing; the median counts.
        limit_s: seconds from now.
        out: the JSON file.
    """
    began = time.monotonic()
    told: dict[str, Any] = {"device": device, "torch": torch.__version__, "steps": STEPS, "sizes": {}}
    if device == "cuda":
        told["gpu"] = torch.cuda.get_device_name()
    told["ceilings"] = ceilings(device)
    with suppress(ImportError):  # speculators tells of every file it reads
        from loguru import logger  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's

        logger.disable("speculators")
    frozen = Frozen(target, device, layers)
    for size in sizes:
        found: dict[str, Any] = {}
        told["sizes"][str(size)] = found
        for name, part in _Parts(frozen, target, train, maps, size, device, repeats).all():
            if time.monotonic() - began > limit_s:
                found["out_of_time_before"] = name
                break
            begun = time.monotonic()
            try:
                found[name] = part()
            except Exception as error:  # noqa: BLE001 - one variant that fails must not cost the others
                found[name] = {"failed": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
            print(f"{time.strftime('%X')} {size} {name} ({time.monotonic() - begun:.0f} s): {found[name]}", flush=True)
            out.write_text(json.dumps(told, indent=1), encoding="utf-8")
        _free(device)
    return told


def ceilings(device: str, width: int = 8192) -> dict[str, float]:
    """Return what this machine reaches: TFLOP/s of a bf16 product of random matrices, TB/s of a copy."""
    width, mega = (width, 4096) if device == "cuda" else (256, 16)
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    one, other = (torch.randn(width, width, device=device, dtype=kind) for _ in range(2))
    product = timed(lambda: one @ other, device, 20)
    source = torch.randint(0, 255, (mega << 20,), device=device, dtype=torch.uint8)
    to = torch.empty_like(source)
    copy = timed(lambda: to.copy_(source), device, 20)
    return {
        "bf16_tflops": 2 * width**3 / product / 1e12,
        "copy_tb_s": 2 * (mega << 20) / copy / 1e12,
        "data_sheet_bf16_tflops": BF16_DENSE_TFLOPS,
        "data_sheet_tb_s": MEMORY_TB_S,
    }


def timed(work: Callable[[], Any], device: str, repeats: int, warm: int = 3) -> float:
    """Return the median seconds of one call, by the device's own clock where it has one."""
    for _ in range(warm):
        work()
    if device != "cuda":
        times = []
        for _ in range(max(1, repeats)):
            begun = time.perf_counter()
            work()
            times.append(time.perf_counter() - begun)
        return statistics.median(times)
    torch.cuda.synchronize()
    events = []
    for _ in range(repeats):
        pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        pair[0].record()
        work()
        pair[1].record()
        events.append(pair)
    torch.cuda.synchronize()
    return float(statistics.median(first.elapsed_time(last) for first, last in events)) / 1e3


def draft(target: Path, maps: Path, layers: Sequence[int], device: str, seed: int = 0) -> Any:
    """Return a head with fresh weights, as `speculators train` makes it here."""
    from speculators.models.eagle3 import (  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's
        Eagle3DraftModel,
    )
    from speculators.train.cli import (  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's
        create_transformer_layer_config,
    )

    torch.manual_seed(seed)
    d2t, t2d = (torch.from_numpy(np.load(maps / name)) for name in ("d2t.npy", "t2d.npy"))
    config = create_transformer_layer_config(str(target), 1, "llama", None, 2048, [])
    made = Eagle3DraftModel.from_training_args(
        verifier_config=config,
        t2d=t2d,
        d2t=d2t,
        verifier_name_or_path=str(target),
        draft_vocab_size=len(d2t),
        norm_before_residual=False,
        norm_before_fc=True,
        norm_output=True,
        target_layer_ids=list(layers),
        ttt_steps=STEPS,
        draft_attn_impl="simple_flex_attention" if device == "cuda" else "sdpa",
    )
    return made.to(device).train()


def shape_of(model: Any, slots: int) -> dict[str, int]:
    """Return what the floor is counted from."""
    return {
        "layer": sum(one.numel() for one in model.layers.parameters() if one.ndim > 1),
        "output": model.lm_head.weight.numel(),
        "output_trained": int(model.lm_head.weight.requires_grad),
        "projection": model.fc.weight.numel(),
        "trainable": sum(one.numel() for one in model.parameters() if one.requires_grad),
        "states": slots * model.hidden_size * 2 + 8,
    }


_BATCHES = 4
"""So many that no cache holds them all."""


@dataclass
class _Parts:
    """What is measured at one size of batch.

    Attributes:
        frozen: the target.
        target: its folder.
        train: the samples.
        maps: the folder of the vocabulary's maps.
        size: packed tokens of a batch.
        device: `cuda` or `cpu`.
        repeats: of each timing.
    """

    frozen: Frozen
    target: Path
    train: Path
    maps: Path
    size: int
    device: str
    repeats: int
    batches: list[dict[str, Any]] = field(default_factory=list)
    loss: float = float("nan")
    learned: float = float("nan")

    def all(self) -> list[tuple[str, Callable[[], dict[str, Any]]]]:
        """Return the parts by name, the most wanted first."""
        return [
            ("data", self.data),
            ("floor", self.floor),
            ("speculators", self.speculators),
            ("lean", self.lean),
            ("optimizers", self.optimizers),
            ("lean_adamw_fused", lambda: self.lean(fused=True)),
            ("speculators_uncompiled", lambda: self.speculators(compiled=False)),
        ]

    @property
    def kind(self) -> torch.dtype:
        """The type that is computed in."""
        return torch.bfloat16 if self.device == "cuda" else torch.float32

    def data(self) -> dict[str, Any]:
        """Pack batches and take the target's states of them; they are kept for all other parts."""
        request = {"train": str(self.train), "held_out": str(self.train), "held_out_limit": 1}
        told = {"total_seq_len": self.size, "hidden_states_dtype": self.kind, "hidden_size": 0, "num_target_layers": 3}
        loader, _ = Loaders(request, self.frozen)(**told)
        begun = time.perf_counter()
        raw = list(itertools.islice(loader.loader, _BATCHES))
        fetch = (time.perf_counter() - begun) / len(raw)
        turn = itertools.cycle(raw)
        states_s = timed(lambda: self.frozen.batch(next(turn)), self.device, self.repeats)
        self.batches = [
            {name: one for name, one in self.frozen.batch(some).items() if torch.is_tensor(one)} for some in raw
        ]
        first = self.batches[0]
        self.learned = float(first["loss_mask"].sum()) / self.size
        return {
            "batches": len(raw),
            "tokens": int((first["document_ids"] >= 0).sum()),
            "learned_share": self.learned,
            "pack_ids_ms": 1e3 * fetch,
            "target_states_ms": 1e3 * states_s,
        }

    def floor(self) -> dict[str, Any]:
        """Count what a step has to do, at the rates that this machine reaches."""
        shape = shape_of(self.model(), len(self.frozen.read) + 1)
        return {**floor(shape, self.size, self.learned, ceilings(self.device)), **shape}

    def speculators(self, *, compiled: bool = True) -> dict[str, Any]:
        """Time speculators' own step."""
        from speculators.losses import (  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's
            resolve_loss_config,
        )

        model, turn = self.model(), itertools.cycle(self.batches)
        config = resolve_loss_config("kl_div", "fused" if self.device == "cuda" else "eager")
        call = type(model).forward
        call = call if compiled else getattr(call, "_torchdynamo_orig_callable", call)

        def forward(batch: Mapping[str, Any], steps: int = STEPS, *, loss: bool = True) -> Any:
            taken = {**batch, **({} if loss else {"verifier_last_hidden_states": None})}
            with self._autocast():
                return call(model, **taken, ttt_steps=steps, ttt_step_loss_decay=1.0, loss_config=config)

        found: dict[str, Any] = {"loss": float(forward(self.batches[0])[1].detach())}
        if compiled:
            self.loss = found["loss"]
            for steps in range(1, STEPS):
                begun = timed(lambda steps=steps: forward(next(turn), steps), self.device, self.repeats)  # type: ignore[misc]
                found[f"forward_{steps}_ms"] = 1e3 * begun
            found["forward_no_loss_ms"] = 1e3 * timed(
                lambda: forward(next(turn), loss=False), self.device, self.repeats
            )
        return {**found, **self._stepped(lambda batch: forward(batch)[1], model, self._optimizers(model))}

    def lean(self, *, fused: bool = False) -> dict[str, Any]:
        """Time the leaner step on the same weights and batches."""
        model, roll = self.model(), lean.rolled_out
        if self.device == "cuda":
            lean.compile_parts()
            roll = torch.compile(lean.rolled_out)

        def loss(batch: Mapping[str, Any]) -> Any:
            with self._autocast():
                return lean.loss_of(model, batch, STEPS, roll=roll)

        found = {"loss": float(loss(self.batches[0]).detach())}
        found["loss_difference"] = found["loss"] / self.loss - 1
        optimizers = self._optimizers(model)
        if fused:
            taken = [one for one in model.parameters() if one.requires_grad]
            optimizers = [torch.optim.AdamW(taken, lr=1e-4, fused=True)]
        return {**found, **self._stepped(loss, model, optimizers)}

    def optimizers(self) -> dict[str, Any]:
        """Time the step of other optimizers alone."""
        found = {}
        cases: tuple[tuple[str, dict[str, Any] | None], ...] = (
            ("muon", None),
            ("adamw", {}),
            ("adamw_fused", {"fused": True}),
            ("adamw_bf16", {"fused": True}),
        )
        for name, options in cases:
            model = self.model()
            model = model.to(torch.bfloat16) if "bf16" in name else model
            taken = [one for one in model.parameters() if one.requires_grad]
            for one in taken:
                one.grad = torch.randn_like(one) * 1e-4
            made = self._optimizers(model) if options is None else [torch.optim.AdamW(taken, lr=1e-4, **options)]

            def step(made: Sequence[Any] = made) -> None:
                for one in made:
                    one.step()

            found[f"{name}_ms"] = 1e3 * timed(step, self.device, self.repeats)
        return found

    def model(self) -> Any:
        """Return the head, always with the same fresh weights."""
        return draft(self.target, self.maps, self.frozen.read, self.device)

    def _optimizers(self, model: Any) -> list[Any]:
        from speculators.train.optimizers import (  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's
            build_optimizers,
        )

        return list(build_optimizers(model, _Settings()))

    def _autocast(self) -> Any:
        return torch.autocast(self.device, dtype=self.kind, enabled=self.device == "cuda")

    def _stepped(
        self, loss: Callable[[Mapping[str, Any]], Any], model: Any, optimizers: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the times of a whole step and of its parts, and the loss after the steps that were timed."""
        turn = itertools.cycle(self.batches)

        def both() -> None:
            for one in optimizers:
                one.zero_grad()
            loss(next(turn)).backward()

        def clipped() -> None:
            both()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

        def whole() -> None:
            clipped()
            for one in optimizers:
                one.step()

        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        works: list[Callable[[], Any]] = [lambda: loss(next(turn)), both, clipped, whole]
        times = [timed(one, self.device, self.repeats) for one in works]
        found = {
            "forward_ms": 1e3 * times[0],
            "backward_ms": 1e3 * (times[1] - times[0]),
            "clip_ms": 1e3 * (times[2] - times[1]),
            "optimizer_ms": 1e3 * (times[3] - times[2]),
            "step_ms": 1e3 * times[3],
            "tokens_per_s": self.size / times[3],
            "loss_after": float(loss(self.batches[0]).detach()),
        }
        if self.device == "cuda":
            found["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return found


class _Settings:
    """What `build_optimizers` reads: speculators 0.9's defaults, with Muon."""

    optimizer, lr, weight_decay = "muon", 1e-3, 0.01
    muon_lr, muon_momentum, muon_weight_decay, muon_ns_steps = 0.02, 0.95, 0.1, 5
    muon_adjust_lr_fn = "match_rms_adamw"


def _free(device: str) -> None:
    """Give the memory of one size back; the next size is compiled anew."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch._dynamo.reset()  # noqa: SLF001 - there is no public name
