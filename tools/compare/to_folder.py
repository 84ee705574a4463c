"""to_folder.py SOURCE FOLDER DTYPE: a GGUF file or a folder as transformers reads it, in a type.

Runs in the environment of the peers. The folder appears under its name once it is complete."""

import os
import sys


def main():
    source, folder, dtype = sys.argv[1:]
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    if os.path.isfile(source):
        parent = os.path.dirname(os.path.abspath(source))
        where = {"gguf_file": os.path.basename(source)}
    else:
        parent, where = source, {}
    model = AutoModelForCausalLM.from_pretrained(parent, dtype=getattr(torch, dtype), **where)
    # The weights are plain by now; what is left of GGUF's quantiser makes save_pretrained refuse.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    part = folder + ".part"
    model.save_pretrained(part)
    if where:
        AutoTokenizer.from_pretrained(parent, **where).save_pretrained(part)  # AirLLM wants one
    os.rename(part, folder)


if __name__ == "__main__":
    main()
