import pytest

from draftworth.engines.vllm.planned_flags import read_flags, speculative_config, truth, variables, whole


def test_flags_are_read_from_shell_strings_and_the_last_one_counts() -> None:
    command = ["bash", "-lc", "cd /x && VLLM_USE_V1=0 exec vllm serve m --max-num-seqs 8 --enable-lora -tp 2 >log"]
    assert read_flags(command, ["--max_num_seqs=16", "--cudagraph-capture-sizes", "1", "2", "-O.mode", "3"]) == {
        "max_num_seqs": "16",
        "enable_lora": "true",
        "tensor_parallel_size": "2",
        "cudagraph_capture_sizes": "1 2",
        "O.mode": "3",
    }
    assert variables(command, {"VLLM_X": "1", "HOME": "/"}) == {"VLLM_USE_V1": "0", "VLLM_X": "1"}


def test_a_configuration_is_read_from_json_from_single_keys_and_from_short_flags() -> None:
    assert speculative_config({"speculative_config": '{"method":"ngram"}', "spec_tokens": "3"}) == {
        "method": "ngram",
        "num_speculative_tokens": "3",
    }
    assert speculative_config({"speculative_config.method": "suffix"}) == {"method": "suffix"}
    assert speculative_config({"speculative_config": "{not json"}) is None
    assert speculative_config({"speculative_config": "[1]"}) is None


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (5, 5),
        ("5", 5),
        (5.0, 5),
        ("8k", 8000),
        ("8K", 8192),
        ("-1", -1),
        (5.5, None),
        (True, None),
        ("", None),
        (None, None),
    ],
)
def test_whole_numbers_are_read_as_vllm_reads_them(written: object, number: int | None) -> None:
    assert whole(written) == number


def test_switches_are_on_off_or_not_said() -> None:
    assert [truth(value) for value in (True, "True", "1", 0, "false", "None", "maybe", None, 2)] == [
        True, True, True, False, False, False, None, None, None
    ]  # fmt: skip
