"""What training a head costs, as formulas: bytes of states, FLOPs of states and of training.

A head is one decoder layer of the target's width whose attention reads two vectors a token (EAGLE-3, arXiv 2503.01840,
section 3.1), a projection of the auxiliary states, and a row of the output layer for each token of its vocabulary.
"""

from dataclasses import dataclass

_STATE_BYTES = {"bf16": 2.0, "fp8": 1.0, "fp32": 4.0}
_FP8_SCALE_BYTES = 4.0
"""A float32 scale a token beside fp8 states (hs_connectors 0.9, layout of `hidden_states_scales`)."""
_TRAIN = 6
"""FLOPs of a weight and token: 2 forward, 4 backward (Kaplan et al., arXiv 2001.08361, section 2.1)."""
_FROZEN = 4
"""FLOPs a parameter and token of a layer that passes gradients on and has none of its own."""
_FORWARD = 2
ID_BYTES = 8
"""Of a token id beside its states: int64."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """What of a head its cost depends on.

    Attributes:
        hidden: width, the target's.
        intermediate: width of the feed-forward part.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: of each.
        aux: auxiliary states that it reads.
        vocabulary: tokens it can draft.
        window: tokens that its layer attends to.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    aux: int
    vocabulary: int
    window: int

    @property
    def layer_parameters(self) -> int:
        """Of the decoder layer's matrices: q, k and v of two vectors, o, three of the feed-forward part."""
        attention = 2 * self.hidden * (self.heads + 2 * self.kv_heads) * self.head_dim
        return attention + self.heads * self.head_dim * self.hidden + 3 * self.hidden * self.intermediate

    @property
    def fc_parameters(self) -> int:
        """Of the projection of the auxiliary states."""
        return self.aux * self.hidden * self.hidden

    @property
    def output_parameters(self) -> int:
        """Of the output layer."""
        return self.hidden * self.vocabulary

    @property
    def parameters(self) -> int:
        """Of all trained matrices; the embedding is the target's."""
        return self.layer_parameters + self.fc_parameters + self.output_parameters


def state_bytes(tokens: float, hidden: int, aux: int, dtype: str) -> float:
    """Return the bytes of states on disk: tokens x ((aux + 1) x hidden x bytes of a number + the token's id and scale).

    Args:
        tokens: of all samples.
        hidden: the target's width.
        aux: auxiliary states; one more is kept, the input of the last norm.
        dtype: `bf16`, `fp8` or `fp32`.
    """
    scale = _FP8_SCALE_BYTES if dtype == "fp8" else 0.0
    return tokens * ((aux + 1) * hidden * _STATE_BYTES[dtype] + ID_BYTES + scale)


def states_flops(tokens: float, active_parameters: float) -> float:
    """Return the FLOPs of one forward of the target: 2 x active parameters x tokens, attention left out."""
    return _FORWARD * active_parameters * tokens


def training_flops(tokens: float, shape: HeadShape, *, epochs: int, steps: int, context: float) -> float:
    """Return the FLOPs of training.

    epochs x tokens x [steps x (6 x layer + 4 x output + 12 x min(context, window) / 2 x heads x head_dim)
    + 6 x projection + 2 x output], the last for what the target's own output layer says of each token. The second term
    is attention: 2 products of 2 FLOPs each, three times with the backward pass, over half of the context on average.
    The output layer is the target's and stays (speculators 0.9, `model.py`): it has no gradient of its own.

    Args:
        tokens: of all training samples.
        shape: the head's.
        epochs: how often each is seen.
        steps: of the training-time test.
        context: mean tokens of a sample.
    """
    attention = 12 * min(context, shape.window) / 2 * shape.heads * shape.head_dim
    step = _TRAIN * shape.layer_parameters + _FROZEN * shape.output_parameters + attention
    once = _TRAIN * shape.fc_parameters + _FORWARD * shape.output_parameters
    return epochs * tokens * (steps * step + once)


def gpu_hours(flops: float, tflops: float, share: float) -> float:
    """Return hours of one GPU: FLOPs over the share of its peak that is reached.

    Args:
        flops: what is to be done.
        tflops: its dense peak, in 10^12 a second.
        share: above 0, at most 1.
    """
    return flops / (tflops * 1e12 * share) / 3600
