"""Accelerate: weights in CPU memory or on disk, brought for each layer of each forward pass.

max_memory is about weights alone: KV cache and activations come on top, whatever it says."""

import common

GROUP = "torch"
FORM = "folder"
DISK_MB = 80  # of weights that may stay in memory: less than one matrix of an embedding
VARIANTS = {**{f"accelerate-disk-{dtype}": {"dtype": dtype, "to": "disk", "cpu_mb": DISK_MB}
               for dtype in ("float32", "bfloat16", "float16")},
            **{f"accelerate-cpu-{dtype}": {"dtype": dtype, "to": "cpu"}
               for dtype in ("float32", "bfloat16")}}


def load(job):
    import accelerate
    import torch
    if job.settings["to"] == "disk":
        model = common.load_transformers(
            job, device_map="auto", offload_folder=job.work,
            max_memory={"cpu": f"{job.settings['cpu_mb']}MB"})
    else:
        model = accelerate.cpu_offload(common.load_transformers(job),
                                       execution_device=torch.device("cpu"))
    return common.Loaded(lambda *call: common.greedy(model, *call),
                         common.versions("accelerate", "torch", "transformers"), warm_up=False)


if __name__ == "__main__":
    common.run(load)
