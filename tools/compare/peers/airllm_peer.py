"""AirLLM: a file a layer on disk, one layer in memory at a time."""

import common

GROUP = "airllm"
FORM = "folder"
VARIANTS = {f"airllm-{dtype}": {"dtype": dtype} for dtype in ("float32", "bfloat16")}


def load(job):
    import torch
    from airllm import AutoModel
    torch.set_num_threads(job.threads)
    model = AutoModel.from_pretrained(job.model, device="cpu", dtype=getattr(torch, job.dtype),
                                      layer_shards_saving_path=job.work)
    return common.Loaded(lambda *call: common.greedy(model, *call),
                         common.versions("airllm", "torch", "transformers"), warm_up=False)


if __name__ == "__main__":
    common.run(load)
