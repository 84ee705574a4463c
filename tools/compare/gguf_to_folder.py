"""gguf_to_folder.py FILE.gguf FOLDER: a GGUF model as transformers reads it, weights in float32.

Runs in the environment of the peers. The folder appears under its name once it is complete."""

import os
import sys


def main():
    source, folder = sys.argv[1:]
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    where = {"gguf_file": os.path.basename(source)}
    parent = os.path.dirname(os.path.abspath(source))
    model = AutoModelForCausalLM.from_pretrained(parent, dtype=torch.float32, **where)
    # The weights are plain by now; what is left of the quantiser makes save_pretrained refuse.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    part = folder + ".part"
    model.save_pretrained(part)
    AutoTokenizer.from_pretrained(parent, **where).save_pretrained(part)  # AirLLM wants one
    os.rename(part, folder)


if __name__ == "__main__":
    main()
