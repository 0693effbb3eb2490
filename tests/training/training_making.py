"""Small targets with a byte-level tokenizer and chat templates of known kinds, and recipes on them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN3 = (
    "{%- set ns = namespace(last=-1) -%}{%- for m in messages -%}"
    "{%- if m.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}"
    "{%- for m in messages -%}{{ '<|im_start|>' + m.role + '\n' }}"
    "{%- if m.role == 'assistant' and loop.index0 > ns.last -%}"
    "{{ '<think>\n' + (m.reasoning_content or '').strip() + '\n</think>\n\n' }}{%- endif -%}"
    "{{ m.content + '<|im_end|>\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}"
    "{%- if enable_thinking is defined and not enable_thinking -%}{{ '<think>\n\n</think>\n\n' }}{%- endif -%}"
    "{%- endif -%}"
)
R1 = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}"
    "{% else %}<|Assistant|>{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}"
)
TAGGED = (
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}[A]{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}[U]{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}[ANSWER]{% endif %}"
)
SPECIAL = ("<|bos|>", "<|im_start|>", "<|im_end|>", "<|User|>", "<|Assistant|>")


def make_target(
    folder: Path,
    template: str | None = CHATML,
    *,
    merges: Sequence[tuple[str, str]] = (),
    config: Mapping[str, Any] | None = None,
) -> Path:
    """Make a target's folder without weights: 256 byte tokens, merges, special tokens; ids in that order."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = sorted(ByteLevel.alphabet())
    vocab = {letter: number for number, letter in enumerate(alphabet)}
    for one, other in merges:
        vocab[one + other] = len(vocab)
    tokenizer = Tokenizer(BPE(vocab, list(merges)))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens([AddedToken(one, special=True) for one in SPECIAL])
    tokenizer.add_tokens([AddedToken(one, special=False) for one in ("<think>", "</think>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    told: dict[str, Any] = {"bos_token": "<|bos|>", "eos_token": "<|im_end|>"}
    if template is not None:
        told["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")
    shape = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 320,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 8,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps({**shape, **(config or {})}), encoding="utf-8")
    return folder


def chat(*said: str, **more: Any) -> dict[str, Any]:
    """Return a row of messages that the user and the assistant say in turn."""
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[at % 2], "content": text} for at, text in enumerate(said)], **more}


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_recipe(folder: Path, text: str = "", *, source: str = "chat.jsonl", data: str = "") -> Path:
    """Write a recipe for the target `target/` and one source beside it."""
    path = folder / "recipe.toml"
    path.write_text(
        f'target = "target"\n[data]\n{data}\n[[data.sources]]\npath = "{source}"\n{text}\n', encoding="utf-8"
    )
    return path


class Said:
    """Keeps what a stage tells."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[str] = []
        self.skipped = 0

    def now(self, text: str) -> None:
        """Nothing."""

    def count(self, done: int, total: int, note: str = "") -> None:
        """Nothing."""

    def line(self, text: str) -> None:
        """Keep it."""
        self.lines.append(text)

    def step(self, title: str) -> None:
        """Keep it."""
        self.steps.append(title)

    def skip(self) -> None:
        """Count it."""
        self.skipped += 1

    @property
    def text(self) -> str:
        """All lines."""
        return "\n".join(self.lines)
