#!/usr/bin/env python3
"""A checkpoint of the standard variant is a Llama: loads it with Hugging Face transformers, computes logits, loss and gradients,
writes them as a golden file, and has golden_check compare this project's own against them.

transformers computes norms and rotary embedding in float32 whatever the weights' type, so what is asked of golden_check here is
float32's tolerance in float64 as well; the golden files in tests/golden are exact.

Needs torch, transformers and safetensors (tests/interop/requirements.txt), in a virtual environment of its own:

    python3 -m venv .venv-interop && .venv-interop/bin/pip install -r tests/interop/requirements.txt
    .venv-interop/bin/python tests/interop/llama_logits.py runs/quickstart/runs/standard-seed1 build/golden_check
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM


def newest_checkpoint(path: pathlib.Path) -> pathlib.Path:
    if (path / "config.json").exists():
        return path
    return sorted((path / "checkpoints").glob("step-*"))[-1]


def main() -> int:
    checkpoint = newest_checkpoint(pathlib.Path(sys.argv[1]))
    golden_check = sys.argv[2]
    model = AutoModelForCausalLM.from_pretrained(checkpoint, local_files_only=True, dtype=torch.float64)
    config = json.loads((checkpoint / "config.json").read_text())

    torch.manual_seed(0)
    tokens = torch.randint(0, config["vocab_size"], (2, 33))
    input_ids, targets = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    logits = model(input_ids).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    loss.backward()

    tensors = {"input_ids": input_ids, "targets": targets, "logits": logits.detach().contiguous(), "loss": loss.detach().reshape(1)}
    for name, parameter in model.named_parameters():
        tensors["param." + name] = parameter.detach().contiguous()
        tensors["grad." + name] = parameter.grad.contiguous()
    keys = ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rms_norm_eps", "rope_theta"]
    metadata = {"config": json.dumps({key: config[key] for key in keys} | {"variant": "standard"})}
    with tempfile.TemporaryDirectory() as folder:
        file = str(pathlib.Path(folder) / "model_llama.safetensors")
        save_file(tensors, file, metadata)
        output = subprocess.run([golden_check, file], check=False, capture_output=True, text=True).stdout
    lines = re.findall(r"^  (\S+ fp\d\d) +(\S+) +([0-9.e+-]+)", output, re.MULTILINE)
    for kind in sorted({line[0] for line in lines}):
        logits = max(float(error) for name, tensor, error in lines if name == kind and tensor in ("logits", "loss"))
        gradients = max(float(error) for name, tensor, error in lines if name == kind and tensor.startswith("grad."))
        print(f"{kind:16} largest relative error: logits and loss {logits:.2e}, gradients {gradients:.2e}")
    expected = 4 * (len(list(model.named_parameters())) + 2)  # reference and fused, fp64 and fp32
    good = len(lines) == expected and all(float(error) <= 2e-4 for _, _, error in lines)
    print("same as transformers" if good else f"FAILED ({len(lines)} of {expected} tensors compared)\n{output}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
