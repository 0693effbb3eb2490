"""speculators' trainer with what a run that is killed, resumed and judged by acceptance needs.

Read in speculators 0.9.0 `train/trainer.py`, `train/checkpointer.py`, `train/cli.py`. What differs from it, and why:

- A checkpoint is written beside and renamed: it overwrites its epoch's folder in place, and resumes from the highest
  number whatever is in it.
- Weights and optimizer are kept in float32: in its bfloat16 a resumed run goes on from rounded weights, and Adam's step
  count is rounded too.
- A checkpoint is written every few minutes, also within an epoch.
- The best epoch is that with the longest walk on held-out conversations, not that with the lowest loss.
"""

import functools
import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import speculators.train.checkpointer as checkpointer_module  # type: ignore[import-not-found]
import speculators.train.cli as cli_module  # type: ignore[import-not-found]
import speculators.train.trainer as trainer_module  # type: ignore[import-not-found]
import torch
from speculators.train.config import TrainConfig  # type: ignore[import-not-found]

from draftworth.training.workers.channel import Channel, WorkerRefusedError
from draftworth.training.workers.checkpoints import LAYER_CONFIG, link_to, recover, replace_checkpoint
from draftworth.training.workers.eagle3 import Draft
from draftworth.training.workers.fit_progress import ProgressFile
from draftworth.training.workers.samples import Sample, read_states, walk_sample
from draftworth.training.workers.walking import Walked

BEST = "best"
_TIMED_STEPS = 20
"""Steps after which it is known how many of them make up the time between two checkpoints."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What the trainer needs beside speculators' own settings.

    Attributes:
        folder: the stage's folder.
        device: `cpu` or `cuda`.
        held_out: the samples that are walked after every epoch.
        states: the folder of their states.
        walk_k: tokens drafted a step.
        patience: epochs without a better walk after which training ends; 0: never.
        epochs: how many there are at most.
        save_every_s: seconds between two checkpoints within an epoch.
        channel: takes progress.
    """

    folder: Path
    device: str
    held_out: tuple[Sample, ...]
    states: Path
    walk_k: int
    patience: int
    epochs: int
    save_every_s: float
    channel: Channel


class EnoughError(Exception):
    """Walk acceptance no longer rises."""


def run_on_cpu() -> None:
    """Let speculators' trainer run without an accelerator: it moves tensors to the index of one."""
    trainer_module.get_local_rank = lambda: "cpu"
    checkpointer_module.get_current_device = lambda: "cpu"
    torch.accelerator.synchronize = lambda *_args, **_kwargs: None


def train(arguments: Sequence[str], settings: Settings) -> dict[str, Any]:
    """Train, and return what came out.

    Args:
        arguments: for speculators' command line.
        settings: what is added.

    Raises:
        WorkerRefusedError: speculators does not take the arguments, or the training was ended from outside.
    """
    checkpoints = settings.folder / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    if _is_first():
        recover(checkpoints)
    try:
        config = TrainConfig.resolve(list(arguments))
    except SystemExit:
        raise WorkerRefusedError(
            "speculators does not take the arguments that it is given here (see the log); it is another release than "
            "0.9: `draftworth train install`"
        ) from None
    trainer_class = type("Trainer", (WalkingTrainer,), {"settings": settings})
    cli_module.Trainer = trainer_class
    try:
        cli_module.main(config)
    except EnoughError:
        cli_module.maybe_destroy_distributed()
    last = WalkingTrainer.last
    assert last is not None
    if last.was_interrupted:
        raise KeyboardInterrupt
    return last.result()


class WalkingTrainer(trainer_module.Trainer):  # type: ignore[misc]
    """The trainer, as `cli.main` makes it."""

    settings: Settings
    last: "WalkingTrainer | None" = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        WalkingTrainer.last = self
        self.was_interrupted = False
        self.stopped_early = False
        self._progress = ProgressFile(self.settings.folder / "progress.jsonl")
        super().__init__(*args, **kwargs)
        checkpointer = self.checkpointer
        checkpointer.save_checkpoint = functools.partial(checkpointer.save_checkpoint, float_dtype=torch.float32)
        self._first_step = self._epoch_began = self.global_step
        self._epoch_steps = 0
        self._counted: tuple[int, int] | None = None
        self._walked = ""
        self._steps_here = 0
        self._began = time.monotonic()
        self._save_every: int | None = None
        if _is_first():
            self._progress.resume(self.global_step)
            trainer_module.metric_logger.addHandler(_Handler(self))
            trainer_module.metric_logger.setLevel("INFO")
        self._barrier()

    @property
    def raw(self) -> Any:
        """The draft itself, without what distributes it."""
        return getattr(self.model, "module", self.model)

    def run_training(self) -> None:
        """Walk what an interrupted run left unwalked, then train."""
        finished = self.current_epoch - 1
        if finished >= 0 and finished not in self._progress.walks():
            self._judge(finished, None)
        elif self._is_enough():
            self.stopped_early = True
            return
        super().run_training()

    def train_epoch(self, epoch: int, **kwargs: Any) -> None:
        """Train one epoch, counting its steps for the checkpoints within it."""
        resumed = getattr(self, "_resume_local_step", 0) if epoch == self.current_epoch else 0
        self._epoch, self._epoch_began = epoch, self.global_step - resumed
        if hasattr(self.train_loader.batch_sampler, "set_epoch"):
            self.train_loader.batch_sampler.set_epoch(epoch)
        # Counted here: of an epoch that is resumed, the loader has only what is left of it, once it has begun.
        self._epoch_steps = len(self.train_loader)
        self._walked = self._walk_so_far()
        super().train_epoch(epoch, step_callback=self._stepped, **kwargs)

    def val_epoch(self, epoch: int) -> Any:
        """Say what takes the time between an epoch's last step and its walk."""
        self._tell(epoch, "loss of the held-out samples")
        return super().val_epoch(epoch)

    def maybe_save_checkpoint(self, epoch: int | str, local_step: int = 0) -> None:
        """Save beside, then rename: a kill leaves the old checkpoint or the new one."""
        if not isinstance(epoch, int):
            # Ended from outside, perhaps in the middle of a step: the last whole checkpoint is better.
            self.was_interrupted = True
            return
        final = self.checkpointer.path
        beside = final / ".new"
        if _is_first():
            shutil.rmtree(beside, ignore_errors=True)
        self._barrier()
        self.checkpointer.path = beside
        try:
            super().maybe_save_checkpoint(epoch, local_step=local_step)
        finally:
            self.checkpointer.path = final
        self._barrier()
        if _is_first():
            layers = self.raw.config.transformer_layer_config.to_dict()
            (beside / str(epoch) / LAYER_CONFIG).write_text(json.dumps(layers, default=str), "utf-8")
            replace_checkpoint(beside / str(epoch), final / str(epoch))
            self._prune(epoch)
        self._barrier()

    def maybe_update_best(self, epoch: int, val_metrics: Mapping[str, float] | None) -> None:
        """Walk the held-out conversations; end where that has not helped for some epochs."""
        self._judge(epoch, val_metrics)
        if self._is_enough():
            self.stopped_early = True
            raise EnoughError

    def logged(self, message: Mapping[str, Any]) -> None:
        """Keep what speculators tells of a step."""
        if "train" not in message:
            return
        metrics, profile = message["train"], message.get("profile") or {}
        line = {
            "kind": "step",
            "step": int(message["global_step"]),
            "epoch": int(message["epoch"]),
            "loss": float(metrics["loss"]),
            "accuracy": _accuracies(metrics),
            "lr": message["lr"],
            "tokens_per_s": round(float(profile.get("tokens_per_s", 0.0)), 1),
            "fetch_share": round(float(profile.get("fetch_frac", 0.0)), 3),
        }
        self._progress.add(line)
        # Of this process: what an earlier one did says nothing of how long the rest takes.
        done = line["step"] - self._first_step + 1
        left = max(0, self._epoch_began + self._epoch_steps - line["step"] - 1)
        left += self._epoch_steps * (self.settings.epochs - 1 - line["epoch"])
        self._counted = done, done + left
        self._tell(line["epoch"], f"loss {line['loss']:.3f}{self._walked}")

    def result(self) -> dict[str, Any]:
        """Return what came out."""
        walks = self._progress.walks()
        best = _best(walks)
        return {
            "epochs": len(walks),
            "steps": self.global_step,
            "best_epoch": best,
            "walk_k": self.settings.walk_k,
            "acceptance_length": None if best is None else walks[best]["length"],
            "stopped_early": self.stopped_early,
            "device": self.settings.device,
            "trainable": sum(one.numel() for one in self.raw.parameters() if one.requires_grad),
        }

    def _stepped(self) -> None:
        self._steps_here += 1
        if self._steps_here == _TIMED_STEPS:
            each = (time.monotonic() - self._began) / _TIMED_STEPS
            self._save_every = self._shared(max(1, int(self.settings.save_every_s / max(each, 1e-3))))
        if self._save_every and self._steps_here % self._save_every == 0:
            local = self.global_step - self._epoch_began
            if local < self._epoch_steps:  # the epoch's end saves by itself
                self.maybe_save_checkpoint(self._epoch, local_step=local)

    def _judge(self, epoch: int, val_metrics: Mapping[str, float] | None) -> None:
        """Walk on the first process, write the line, and let `best` name the best epoch."""
        if _is_first():
            began = time.monotonic()
            self._tell(epoch, f"walking {len(self.settings.held_out)} held-out samples")
            walked = self._walk()
            metrics = val_metrics or {}
            self._progress.add(
                {
                    "kind": "epoch",
                    "step": self.global_step,
                    "epoch": epoch,
                    "loss": metrics.get("loss_epoch"),
                    "accuracy": _accuracies({key.removesuffix("_epoch"): one for key, one in metrics.items()}),
                    "walk": {**walked.as_dict(), "length": walked.length},
                    "walk_s": round(time.monotonic() - began, 2),
                },
                sync=True,
            )
            best = _best(self._progress.walks())
            if best is not None:
                link_to(self.settings.folder / BEST, Path("checkpoints", str(best)))
            told = "nothing to walk" if walked.length is None else f"{walked.length:.3f} per drafting step"
            told += " (the longest so far)" if best == epoch and walked.length is not None else ""
            self.settings.channel.line(
                f"epoch {epoch + 1}: walk acceptance length at k = {walked.k} {told}"
                + (f", held-out loss {metrics['loss_epoch']:.3f}" if "loss_epoch" in metrics else "")
            )
        self._barrier()
        self._progress.reread()

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _walk(self) -> Walked:
        config = self.raw.config.to_dict()
        config["transformer_layer_config"] = self.raw.config.transformer_layer_config.to_dict()
        for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output"):
            config[name] = getattr(self.raw.config, name)
        draft = Draft(config, self.raw.state_dict(), self.settings.device)
        found = Walked(self.settings.walk_k)
        for sample in self.settings.held_out:
            states = read_states(self.settings.states, sample)
            found.add(walk_sample(draft, sample, states, (self.settings.walk_k,))[self.settings.walk_k])
        return found

    def _tell(self, epoch: int, text: str) -> None:
        """Say what happens, with how far this process is once a step was counted."""
        told = f"epoch {epoch + 1}/{self.settings.epochs}, {text}"
        if self._counted is None:
            self.settings.channel.now(told)
        else:
            self.settings.channel.count(*self._counted, told)

    def _walk_so_far(self) -> str:
        """Return the last epoch's walk for a status line, empty where there is none."""
        walks = self._progress.walks()
        length = walks[max(walks)]["length"] if walks else None
        return "" if length is None else f", walk {length:.2f}"

    def _is_enough(self) -> bool:
        walks = self._progress.walks()
        best = _best(walks)
        if best is None or not self.settings.patience:
            return False
        return max(walks) - best >= self.settings.patience

    def _prune(self, epoch: int) -> None:
        """Remove all but the newest checkpoint and the best: each holds the optimizer's state too."""
        best = _best(self._progress.walks())
        for old in self.checkpointer.path.iterdir():
            if old.is_symlink():
                old.unlink()
            elif old.name == ".new" or (old.name.isdigit() and int(old.name) not in (epoch, best)):
                shutil.rmtree(old)

    def _barrier(self) -> None:
        if self.is_distributed if hasattr(self, "is_distributed") else trainer_module.is_distributed():
            torch.distributed.barrier()

    def _shared(self, value: int) -> int:
        """Return the first process's value in all of them: they must save at the same step."""
        if not self.is_distributed:
            return value
        held = torch.tensor([value], device=self.local_rank)
        torch.distributed.broadcast(held, src=0)
        return int(held.item())


def _best(walks: Mapping[int, Mapping[str, Any]]) -> int | None:
    """Return the epoch with the longest walk, the earliest of equals; the last one where nothing could be walked."""
    if not walks:
        return None
    return max(sorted(walks), key=lambda epoch: walks[epoch]["length"] or 0.0)


def _accuracies(metrics: Mapping[str, Any]) -> list[float]:
    """Return the trainer's accuracy by step of the training-time test: no acceptance, see `walking.py`."""
    found: list[float] = []
    while (name := f"full_acc_{len(found)}") in metrics:
        found.append(round(float(metrics[name]), 4))
    return found


def _is_first() -> bool:
    return bool(trainer_module.get_rank() == 0)


class _Handler(trainer_module.logging.Handler):  # type: ignore[misc]
    """Takes speculators' metrics before they are made into text."""

    def __init__(self, trainer: WalkingTrainer) -> None:
        super().__init__()
        self._trainer = trainer

    def emit(self, record: Any) -> None:
        if isinstance(record.msg, Mapping):
            self._trainer.logged(record.msg)
