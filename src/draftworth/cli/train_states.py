"""`draftworth train states`: hidden states of the target."""

from draftworth.cli.train_words import Again, Json, RecipeFile, run_and_show


def states(recipe: RecipeFile, /, *, again: Again = False, as_json: Json = False) -> int:
    """Take the target's hidden states on every sample, from a vLLM server or from transformers; each one is checked.

    The recipe's `[states]` names the server as `url`, or has `serve = true`. A server of your own is started with

        --enable-scale-out
        --speculative-config '{"method": "extract_hidden_states", "num_speculative_tokens": 1, "draft_model_config":
          {"hf_config": {"eagle_aux_hidden_state_layer_ids": [2, N/2, N-3, N]}}}'
        --kv-transfer-config '{"kv_connector": "ExampleHiddenStatesConnector", "kv_role": "kv_producer",
          "kv_connector_extra_config": {"shared_storage_path": "/A/FOLDER/BOTH/SEE"}}'

    where N is the number of the target's layers; a server without them is refused with the numbers filled in. The disk
    is checked before anything is started. Interrupted, the same command goes on with what is whole.

    Exits 0 when the states are there, 1 where an earlier stage has not run, 2 where it cannot be done here, 6 where the
    server fails or gives states that are not sound.
    """
    from draftworth.training.base import StageName  # noqa: PLC0415 - lazy

    return run_and_show(recipe, [StageName.STATES], again=again, as_json=as_json)
