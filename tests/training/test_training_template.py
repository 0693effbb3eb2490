"""Which tokens the head learns from: exactly what the target writes, shown as text."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.training.training_making import CHATML, QWEN3, R1, TAGGED, make_target
from tokenizers import Tokenizer

from draftworth.training import template as made_of
from draftworth.training.samples import Sample
from draftworth.training.sources.base import Conversation, Ids
from draftworth.training.template import ChatTemplate


def asked(*said: tuple[str, str] | dict[str, Any], tools: tuple[Any, ...] | None = None) -> Conversation:
    messages = tuple(one if isinstance(one, dict) else {"role": one[0], "content": one[1]} for one in said)
    return Conversation("c/1", "c", "c", messages=messages, tools=tools)


def opened(folder: Path, template: str, *, thinking: bool = True, **more: Any) -> ChatTemplate:
    arguments = more.pop("arguments", {})
    return ChatTemplate(make_target(folder / "target", template, **more), arguments, learn_thinking=thinking)


def learned(template: ChatTemplate, sample: Sample) -> list[str]:
    """Return the learned spans as texts."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], sample.mask, [0]])))
    return [template.decode(sample.ids[a:b]) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def test_an_answer_and_its_end_token_are_learned_and_nothing_of_the_template(tmp_path: Path) -> None:
    template = opened(tmp_path, CHATML)
    (sample,) = template.samples(asked(("system", "be brief"), ("user", "Hi"), ("assistant", "Hello.")))
    assert learned(template, sample) == ["Hello.<|im_end|>"]
    assert template.decode(sample.ids) == (
        "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n"
    )
    assert not sample.exact
    assert not template.notes


def test_every_turn_is_learned_in_one_sample(tmp_path: Path) -> None:
    template = opened(tmp_path, CHATML)
    (sample,) = template.samples(
        asked(("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"), ("user", "c"))
    )
    assert learned(template, sample) == ["one<|im_end|>", "two<|im_end|>"]
    assert template.decode(sample.ids).endswith("two<|im_end|>\n")  # what nobody answered is not in it


def test_only_chosen_answers_are_learned(tmp_path: Path) -> None:
    template = opened(tmp_path, CHATML)
    talk = asked(("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two"))
    (sample,) = template.samples(talk, [3])
    assert learned(template, sample) == ["two<|im_end|>"]


def test_an_empty_scaffold_is_not_learned(tmp_path: Path) -> None:
    template = opened(tmp_path, QWEN3)
    (sample,) = template.samples(asked(("user", "Hi"), ("assistant", "Hello.")))
    assert "<think>\n\n</think>\n\nHello." in template.decode(sample.ids)
    assert learned(template, sample) == ["Hello.<|im_end|>"]
    assert template.notes == {made_of.SCAFFOLD: 1}


def test_a_scaffold_that_the_prompt_has_is_not_learned_either(tmp_path: Path) -> None:
    template = opened(tmp_path, QWEN3, arguments={"enable_thinking": False})
    (sample,) = template.samples(asked(("user", "Hi"), ("assistant", "Hello.")))
    assert learned(template, sample) == ["Hello.<|im_end|>"]


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [(True, "<think>\nhm\n</think>\n\nYes.<|im_end|>"), (False, "Yes.<|im_end|>")],
)
def test_reasoning_is_learned_where_it_is_wanted(tmp_path: Path, thinking: bool, expected: str) -> None:  # noqa: FBT001
    template = opened(tmp_path, QWEN3, thinking=thinking)
    talk = asked(("user", "Is it?"), {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"})
    (sample,) = template.samples(talk)
    assert learned(template, sample) == [expected]


def test_reasoning_is_given_under_every_name_that_templates_know(tmp_path: Path) -> None:
    harmony = CHATML.replace(
        "{{ m.content }}", "{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}{{ m.content }}"
    )
    template = opened(tmp_path, harmony)
    talk = asked(("user", "Is it?"), {"role": "assistant", "content": "Yes.", "reasoning_content": "hm"})
    (sample,) = template.samples(talk)
    assert learned(template, sample) == ["<think>hm</think>Yes.<|im_end|>"]


def test_turns_whose_reasoning_is_dropped_later_are_samples_of_their_own(tmp_path: Path) -> None:
    template = opened(tmp_path, QWEN3)
    talk = asked(
        ("user", "a"),
        {"role": "assistant", "content": "one", "reasoning_content": "r1"},
        ("user", "b"),
        {"role": "assistant", "content": "two", "reasoning_content": "r2"},
    )
    first, last = template.samples(talk)
    assert learned(template, first) == ["<think>\nr1\n</think>\n\none<|im_end|>"]
    assert learned(template, last) == ["<think>\nr2\n</think>\n\ntwo<|im_end|>"]
    assert "r1" not in template.decode(last.ids)
    assert template.notes[made_of.OWN_SAMPLE] == 1


def test_a_prompt_that_opens_reasoning_is_no_prefix_and_the_answer_is_found_still(tmp_path: Path) -> None:
    template = opened(tmp_path, R1)
    talk = asked(("user", "a"), {"role": "assistant", "content": "one", "reasoning_content": "why"})
    (sample,) = template.samples(talk)
    assert template.decode(sample.ids) == "<|bos|><|User|>a<|Assistant|>one<|im_end|>"
    assert learned(template, sample) == ["one<|im_end|>"]
    assert template.notes == {made_of.DROPPED: 1, made_of.OPENED: 1}


def test_behind_a_prompt_that_closes_reasoning_the_answer_is_learned_as_it_was_written(tmp_path: Path) -> None:
    template = opened(tmp_path, R1.replace("<think>\n", "<think>\n\n</think>\n\n"))
    (sample,) = template.samples(asked(("user", "one"), ("assistant", "one")))
    assert template.decode(sample.ids) == "<|bos|><|User|>one<|Assistant|><think>\n\n</think>\n\none<|im_end|>"
    assert learned(template, sample) == ["one<|im_end|>"]


def test_a_turn_ends_at_the_token_that_the_target_stops_at(tmp_path: Path) -> None:
    # As Phi 3.5's template: its end of text stands behind the token that ended the turn.
    template = opened(tmp_path, CHATML.replace("{% endif %}", "{% else %}<|bos|>{% endif %}"))
    (sample,) = template.samples(asked(("user", "a"), ("assistant", "one")))
    assert learned(template, sample) == ["one<|im_end|>"]


def test_a_turn_ends_at_the_next_speakers_mark_where_that_is_what_the_target_stops_at(tmp_path: Path) -> None:
    # As GLM's template: nothing ends an answer but the mark of the user.
    glm = "{% for m in messages %}{{ '<|User|>' if m.role == 'user' else '<|Assistant|>' }}{{ m.content }}{% endfor %}"
    folder = make_target(tmp_path / "target", glm + "{% if add_generation_prompt %}<|Assistant|>{% endif %}")
    ends = Tokenizer.from_file(str(folder / "tokenizer.json")).token_to_id("<|User|>")
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": [{ends}]}}', encoding="utf-8")
    template = ChatTemplate(folder, {}, learn_thinking=True)
    (sample,) = template.samples(asked(("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")))
    assert learned(template, sample) == ["one<|User|>", "two"]
    assert template.notes == {made_of.NO_END: 1}


def test_marks_of_the_template_are_the_second_way(tmp_path: Path) -> None:
    template = opened(tmp_path, TAGGED)
    (sample,) = template.samples(asked(("user", "a"), ("assistant", "one"), ("user", "b"), ("assistant", "two")))
    assert template.decode(sample.ids) == "[U]a[A]one<|im_end|>[U]b[A]two<|im_end|>"
    assert learned(template, sample) == ["one<|im_end|>", "two<|im_end|>"]


def test_a_prompt_that_is_no_prefix_and_has_no_marks_is_left_out_and_counted(tmp_path: Path) -> None:
    unmarked = TAGGED.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    template = opened(tmp_path, unmarked)
    assert template.samples(asked(("user", "a"), ("assistant", "one"))) == []
    assert template.notes == {made_of.NO_PREFIX: 1}


def test_calls_of_tools_are_learned_and_their_results_are_not(tmp_path: Path) -> None:
    tooled = CHATML.replace(
        "{{ m.content }}<|im_end|>",
        "{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}{{ c.function.arguments | tojson }}"
        "</call>{% endfor %}<|im_end|>",
    )
    template = opened(tmp_path, tooled)
    call = {"type": "function", "function": {"name": "sum", "arguments": {"a": 1}}}
    talk = asked(
        ("user", "add"),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        ("tool", "3"),
        ("assistant", "It is 3."),
    )
    (sample,) = template.samples(talk)
    assert learned(template, sample) == ['<call>sum{"a": 1}</call><|im_end|>', "It is 3.<|im_end|>"]


def test_a_token_across_the_boundary_is_not_learned(tmp_path: Path) -> None:
    # The tokenizer joins the template's newline with one that begins the answer.
    template = opened(tmp_path, CHATML, merges=[("Ċ", "Ċ")])
    (sample,) = template.samples(asked(("user", "a"), ("assistant", "\nB")))
    assert learned(template, sample) == ["B<|im_end|>"]
    assert template.notes == {made_of.MERGED: 1}


def test_a_template_that_refuses_the_messages_is_counted(tmp_path: Path) -> None:
    strict = "{% if messages[0].role != 'user' %}{{ raise_exception('no') }}{% endif %}" + CHATML
    template = opened(tmp_path, strict)
    assert template.samples(asked(("system", "s"), ("user", "a"), ("assistant", "one"))) == []
    assert template.notes == {f"{made_of.REFUSED} (no)": 1}


def test_an_answer_without_an_end_token_is_counted(tmp_path: Path) -> None:
    template = opened(tmp_path, CHATML.replace("<|im_end|>\n", "\n"))
    (sample,) = template.samples(asked(("user", "a"), ("assistant", "one")))
    assert learned(template, sample) == ["one\n"]
    assert template.notes == {made_of.NO_END: 1}


@pytest.mark.parametrize(
    ("text", "told", "thinking", "expected"),
    [
        ("<think>\nhm\n</think>\n\nYes.", -1, True, "<think>\nhm\n</think>\n\nYes."),
        ("<think>\nhm\n</think>\n\nYes.", -1, False, "Yes."),
        ("hm\n</think>\n\nYes.", -1, False, "Yes."),  # the prompt opened it
        ("<think>\n\n</think>\n\nYes.", -1, True, "Yes."),
        ("</think>\n\nYes.", -1, True, "Yes."),
        ("Yes.", -1, False, "Yes."),
        ("<think>\nnever ends", -1, False, ""),
        ("abcdef", 2, False, "cdef"),
        ("abcdef", 2, True, "abcdef"),
    ],
)
def test_of_recorded_answers_scaffolds_and_unwanted_reasoning_are_left_out(
    tmp_path: Path,
    text: str,
    told: int,
    thinking: bool,  # noqa: FBT001
    expected: str,
) -> None:
    template = opened(tmp_path, CHATML, thinking=thinking)
    ids = Ids(np.array([1], np.int32), template.output(text), told)
    assert template.decode(ids.output[template.left_out(ids) :]) == expected


def test_the_beginning_of_an_answer_is_counted_in_tokens(tmp_path: Path) -> None:
    template = opened(tmp_path, CHATML)
    assert template.tail() == len("assistant\n") + 1
    assert ChatTemplate(make_target(tmp_path / "bare", None), {}, learn_thinking=True).tail() == 0
