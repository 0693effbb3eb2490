import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftworth.engines.lines import unwrap

WORDS = "INFO 11-30 06:14:20 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.41"


@pytest.mark.parametrize(
    ("line", "at"),
    [
        (WORDS, None),
        (f"Nov 30 06:14:20 gpu-1 vllm[812]: {WORDS}", "Nov 30 06:14:20"),
        (f"2026-11-30T06:14:20+0000 gpu-1 vllm[812]: {WORDS}", "2026-11-30T06:14:20+0000"),
        (f"2026-11-30T06:14:20.123456789Z stdout F {WORDS}", "2026-11-30T06:14:20.123456789Z"),
        (f"vllm-1  | {WORDS}", None),
        (json.dumps({"MESSAGE": WORDS, "__REALTIME_TIMESTAMP": "1795932860000000"}), "2026-11-29T06:14:20Z"),
        (
            json.dumps(
                {"MESSAGE": list(f"\x1b[32m{WORDS}\x1b[0m".encode()), "__REALTIME_TIMESTAMP": "1795932860000000"}
            ),
            "2026-11-29T06:14:20Z",
        ),
        (json.dumps({"log": f"{WORDS}\n", "stream": "stdout", "time": "2026-11-30T06:14:20Z"}), "2026-11-30T06:14:20Z"),
        (json.dumps({"message": WORDS, "levelname": "INFO"}), None),
        (f"\x1b[36m{WORDS}\x1b[0m\r\n", None),
        (f"Nov 30 06:14:20 gpu-1 vllm[812]: {json.dumps({'message': WORDS})}", "Nov 30 06:14:20"),
    ],
)
def test_what_a_collector_puts_around_a_line_is_taken_away(line: str, at: str | None) -> None:
    assert unwrap(line) == (WORDS, at)


def test_a_message_cut_off_in_its_json_is_left_as_it_is() -> None:
    assert unwrap('{"MESSAGE":"SpecDec').text == '{"MESSAGE":"SpecDec'


@given(st.text())
def test_no_line_is_too_odd(line: str) -> None:
    assert isinstance(unwrap(line).text, str)


@given(st.text(alphabet=st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1))
def test_journalds_two_forms_of_a_message_are_one(text: str) -> None:
    as_text = unwrap(json.dumps({"MESSAGE": text})).text
    assert unwrap(json.dumps({"MESSAGE": list(text.encode())})).text == as_text
