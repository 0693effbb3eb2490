"""Makes a tiny Llama and greedy text of it, in the training environment: TARGET OUT.jsonl REQUESTS TOKENS.

Attention is made weak, so that a token depends mostly on the one before: text that a head can learn from ten samples.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

PROMPT = 12
_TOLD = ("architectures", "model_type")


def main(target: Path, out: Path, requests: int, tokens: int) -> None:
    """Write the weights beside config.json, and the recorded traffic."""
    torch.manual_seed(5)
    told = json.loads((target / "config.json").read_text("utf-8"))
    config = LlamaConfig(**{name: one for name, one in told.items() if name not in _TOLD}, initializer_range=0.08)
    model = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.02)
    model.save_pretrained(target)
    with out.open("w", encoding="utf-8") as file:
        for number in range(requests):
            prompt = torch.randint(0, 256, (PROMPT,))
            answer = prompt
            with torch.no_grad():
                found = model(prompt[None], use_cache=True)
                while len(answer) < PROMPT + tokens:
                    answer = torch.cat([answer, found.logits[0, -1].argmax()[None]])
                    found = model(answer[None, -1:], past_key_values=found.past_key_values, use_cache=True)
            row = {
                "request_id": str(number),
                "prompt_token_ids": prompt.tolist(),
                "output_token_ids": answer[PROMPT:].tolist(),
                "category": ("coding", "chat")[number % 2],
                "temperature": 0.0,
                "model": "tiny",
                "exact": True,
            }
            file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
