"""A leaner training step of an EAGLE-3 head than speculators 0.9 has, on speculators' own module and weights.

The same loss, computed where it is learned: the training-time test runs first (its next inputs are the text's, so it
needs no logits); then the output layer and the loss are taken on the learned positions alone, chunk by chunk, the
target's probabilities once for all steps, and the gradients with respect to states and weights in the same pass, so
that no logits are kept. What is left out are the accuracies that speculators computes of every position.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor
CHUNK = 4096


class Loss(torch.autograd.Function):  # type: ignore[misc]
    """KL divergence of a head's and its target's distributions over the draft's vocabulary, summed and weighted."""

    @staticmethod
    def forward(  # noqa: PLR0917 - torch's own signature
        ctx: Any, states: Tensor, head: Tensor, target: Tensor, teacher: Tensor, weights: Tensor, chunk: int
    ) -> Tensor:
        """Return the sum of weight times divergence.

        Args:
            ctx: torch's.
            states: the head's, behind its norm, [steps, rows, hidden].
            head: its output layer, [vocabulary, hidden].
            target: the target's states behind its norm, [rows, hidden].
            teacher: the target's output layer, [vocabulary, hidden].
            weights: of each step's row, [steps, rows].
            chunk: rows at a time.
        """
        total = states.new_zeros((), dtype=torch.float32)
        d_states = torch.empty_like(states)
        # speculators 0.9 keeps the output layer as it is in the target.
        d_head = torch.zeros(head.shape, dtype=torch.float32, device=head.device) if head.requires_grad else None
        weight = head.to(states.dtype)
        for first in range(0, states.shape[1], chunk):
            part = slice(first, first + chunk)
            wanted = target[part] @ teacher.to(target.dtype).T
            for step in range(states.shape[0]):
                rows = states[step, part]
                loss, slope = divergence(rows @ weight.T, wanted, weights[step, part])
                total += loss
                d_states[step, part] = slope @ weight
                if d_head is not None:
                    d_head += slope.T @ rows
        ctx.save_for_backward(d_states, *([] if d_head is None else [d_head]))
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients that the forward made, times that of the sum."""
        d_states, *d_head = ctx.saved_tensors
        return d_states * grad.to(d_states.dtype), d_head[0] * grad if d_head else None, None, None, None, None


def divergence(logits: Tensor, wanted: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weighted sum of KL(target, head) over rows, and its slope with respect to the logits."""
    own, theirs = logits.float().log_softmax(-1), wanted.float().log_softmax(-1)
    there = theirs.exp()
    loss = ((there * (theirs - own)).sum(-1) * weights).sum()
    return loss, ((own.exp() - there) * weights[:, None]).to(logits.dtype)


def compile_parts() -> None:
    """Let torch compile what is many small operations: once, where there is a GPU."""
    global divergence  # noqa: PLW0603 - replaced by itself, compiled
    divergence = torch.compile(divergence, dynamic=True)


def rolled_out(model: Any, batch: Mapping[str, Tensor], steps: int) -> list[Tensor]:
    """Return the head's states behind its norm at each step of the training-time test, [1, T, hidden].

    As speculators 0.9 `models/eagle3/core.py` has it, for a head of one or more layers with `norm_output`.
    """
    from speculators.models.eagle3.attention import (  # type: ignore[import-not-found]  # noqa: PLC0415 - not the tool's
        extend_dense_mask_for_draft_tokens,
        extend_mask_for_draft_tokens,
    )
    from transformers import DynamicCache  # noqa: PLC0415 - slow to import

    hidden, ids, positions = batch["hidden_states"], batch["input_ids"], batch["position_ids"]
    length, cache = hidden.shape[1], DynamicCache()
    window = model.sliding_window if model.uses_sliding_window_attn else None
    mask = model._build_attn_mask(  # noqa: SLF001 - what its own forward calls
        batch["document_ids"][0], length, hidden.device, window
    )
    flex = model._attn_impl == "simple_flex_attention"  # noqa: SLF001 - as above
    hidden = hidden if model.input_norm is None else model.input_norm(hidden)
    hidden = model.fc(hidden)
    found, fed = [], ids
    for step in range(steps):
        with torch.no_grad():
            embedded = model.embed_tokens(fed)
        hidden = torch.cat([embedded, hidden.to(embedded.dtype)], -1)
        where = model.rotary_emb(hidden, positions)
        at = torch.arange(step * length, (step + 1) * length, device=hidden.device)
        for layer in model.layers:
            hidden = layer(
                hidden,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=cache,
                cache_position=at,
                position_embeddings=where,
            )
        hidden = model.norm(hidden)
        found.append(hidden)
        if step + 1 < steps:
            fed = torch.cat([ids[:, 1 + step :], ids.new_zeros(1, 1 + step)], -1)
            mask = extend_mask_for_draft_tokens(mask) if flex else extend_dense_mask_for_draft_tokens(mask, length)
            positions = positions + 1
    return found


def loss_of(
    model: Any, batch: Mapping[str, Tensor], steps: int, *, chunk: int = CHUNK, roll: Any = rolled_out
) -> Tensor:
    """Return the loss of a batch: that of speculators' `kl_div` with no decay, to rounding.

    Args:
        model: speculators' `Eagle3DraftModel`.
        batch: as its trainer takes it.
        steps: of the training-time test.
        chunk: rows of the vocabulary's pass.
        roll: `rolled_out`, or what torch made of it.
    """
    learned = batch["loss_mask"][0].nonzero()[:, 0]
    found = roll(model, batch, steps)
    shifted = learned[None] - torch.arange(steps, device=learned.device)[:, None]
    there = shifted >= 0
    rows = torch.stack([one[0][at.clamp(min=0)] for one, at in zip(found, shifted, strict=True)])
    with torch.no_grad():
        target = model.verifier_norm(batch["verifier_last_hidden_states"])[0][learned]
    weights = there.float() / (there.sum(1, keepdim=True) + 1e-5)
    kind = torch.get_autocast_dtype(rows.device.type) if torch.is_autocast_enabled(rows.device.type) else rows.dtype
    return Loss.apply(
        rows.to(kind), model.lm_head.weight, target.to(kind), model.verifier_lm_head.weight, weights, chunk
    )
