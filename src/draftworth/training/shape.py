"""What states and a head need of a target: its width, its layers, which of them are read; refused where it cannot."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from draftworth.errors import RefusedError
from draftworth.heads.architectures import AUXILIARY, READ, REGISTERED
from draftworth.heads.checks.auxiliary import default_layers
from draftworth.heads.folder import open_model

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class TargetShape:
    """A target as a head sees it.

    Attributes:
        path: its folder.
        layers: how many there are.
        hidden: its width.
        aux: after how many layers each auxiliary state is read, rising.
    """

    path: Path
    layers: int
    hidden: int
    aux: tuple[int, ...]

    @property
    def slots(self) -> int:
        """States a token: the auxiliary ones and the one in front of the last norm."""
        return len(self.aux) + 1


def target_shape(target: Path, layers: Sequence[int] | None) -> TargetShape:
    """Return a target's shape.

    Args:
        target: its folder.
        layers: the recipe's layers; None for the usual three.

    Raises:
        UsageError: config.json is missing or does not say.
        RefusedError: the layers are not there, too few for the usual three, or vLLM cannot read states of this
            architecture.
    """
    model = open_model(target, "the target")
    check_supported(model.architecture)
    count, hidden = model.text.need("num_hidden_layers"), model.text.need("hidden_size")
    aux = tuple(default_layers(count) if layers is None else sorted(layers))
    if layers is None and (len(set(aux)) < len(aux) or min(aux) < 1 or list(aux) != sorted(aux)):
        raise RefusedError(
            f"{target}: {count} layers are too few for the usual auxiliary states ({', '.join(map(str, aux))}: 2, half "
            f"of the layers, all but three); name three different ones from 0 to {count - 1} as states.layers"
        )
    wrong = [one for one in aux if not 0 <= one < count]
    if wrong:
        raise RefusedError(
            f"states.layers: {', '.join(map(str, wrong))}: the target has {count} layers, so 0 to {count - 1} can be "
            "read (the state behind the last one is always kept)"
        )
    return TargetShape(target, count, hidden, aux)


def check_supported(architecture: str | None) -> None:
    """Raise RefusedError where vLLM gives no auxiliary states of a target's architecture, with those it does."""
    supported = AUXILIARY[READ[-1]]
    if architecture is None or architecture in supported or architecture not in REGISTERED[READ[-1]]:
        return  # what is not registered goes through the Transformers backend, which may well support it
    near = sorted(one for one in supported if one[:4] == architecture[:4])
    others = sorted(supported - set(near))
    version = ".".join(map(str, READ[-1]))
    raise RefusedError(
        f"{architecture}: vLLM {version} serves it without auxiliary hidden states, so no EAGLE-3 head can be served "
        f"with it; those that have them: {', '.join([*near, *others][:_SHOWN])} and {len(supported) - _SHOWN} more"
    )
