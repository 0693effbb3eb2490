"""What a training step of an EAGLE-3 head has to do at least."""

from collections.abc import Mapping

BF16_DENSE_TFLOPS, MEMORY_TB_S = 989.4, 4.8
"""NVIDIA's data sheet of the H200 (SXM): dense bf16, and HBM3e."""
STEPS = 3
"""Of the training-time test."""


def floor(
    shape: Mapping[str, int], tokens: int, learned: float, rates: Mapping[str, float], steps: int = STEPS
) -> dict[str, float]:
    """Return what a step has to do at least.

    Args:
        shape: `layer`, `output`, `projection`: parameters; `output_trained`; `trainable`; `states`: bytes a token.
        tokens: of a batch.
        learned: share of them that is learned.
        rates: of `ceilings`.
        steps: of the training-time test.
    """
    # Forward 2 operations a parameter and token, backward 4; 2 where a weight is passed through and not trained, as
    # speculators 0.9 does with the output layer. It takes that on every position, learned or not.
    output = shape["output"] * (6 if shape["output_trained"] else 4)
    fixed = tokens * (steps * 6 * shape["layer"] + 6 * shape["projection"])
    whole = fixed + tokens * (steps * output + 2 * shape["output"])
    least = fixed + tokens * learned * (steps * output + 2 * shape["output"])
    # States and ids once; weights, gradients and two moments read, all but the gradients written (float32).
    moved = tokens * shape["states"] + shape["trainable"] * 4 * 7
    rate, copy = rates["bf16_tflops"] * 1e12, rates["copy_tb_s"] * 1e12
    return {
        "flops": whole,
        "flops_learned_alone": least,
        "bytes": moved,
        "ms_flops": 1e3 * whole / rate,
        "ms_flops_learned_alone": 1e3 * least / rate,
        "ms_bytes": 1e3 * moved / copy,
        "ms": 1e3 * max(whole / rate, moved / copy),
        "ms_learned_alone": 1e3 * max(least / rate, moved / copy),
    }
