"""DeepSpeed ZeRO-Inference: stage 3, parameters in CPU memory or on NVMe, its CPU accelerator.

It takes a training configuration, also for inference, which must be there before the model is."""

import glob
import os

import common

GROUP = "deepspeed"
FORM = "folder"
VARIANTS = {**{f"deepspeed-cpu-{dtype}": {"dtype": dtype, "to": "cpu"}
               for dtype in ("float32", "bfloat16")},
            "deepspeed-nvme-bfloat16": {"dtype": "bfloat16", "to": "nvme"},
            "deepspeed-nvme-float32": {"dtype": "float32", "to": "nvme"}}
ONE_PROCESS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": "29511", "DS_ACCELERATOR": "cpu"}


def configuration(job):
    offload = {"device": job.settings["to"], "pin_memory": False}
    if job.settings["to"] == "nvme":
        # A buffer holds a whole parameter: 5 of them, each of the largest one's elements.
        offload.update(nvme_path=job.work, buffer_count=5, buffer_size=largest(job.model))
    zero = {"stage": 3, "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 50_000_000, "stage3_prefetch_bucket_size": 5_000_000,
            "offload_param": offload}
    return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero,
            "bf16": {"enabled": job.dtype == "bfloat16"}}


def largest(folder):
    """Elements of the largest matrix, which is an embedding or one of the feed-forward."""
    from transformers import AutoConfig
    config = AutoConfig.from_pretrained(folder)
    ffn = getattr(config, "intermediate_size", None) or config.ffn_dim
    return config.hidden_size * max(config.vocab_size, ffn)


def forget_locks():
    """A run that is ended while DeepSpeed compiles leaves a lock, for which later ones wait."""
    for lock in glob.glob(os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "*", "lock")):
        os.remove(lock)


def compile_operations():
    """What DeepSpeed compiles when it first needs it, minutes long; called by the installation."""
    os.environ.update(ONE_PROCESS)
    forget_locks()
    from deepspeed.accelerator import get_accelerator
    for name in ("ShareMemCommBuilder", "AsyncIOBuilder"):  # the second needs libaio-dev
        get_accelerator().create_op_builder(name).load(verbose=False)


def load(job):
    os.environ.update(ONE_PROCESS)
    forget_locks()
    import deepspeed
    from transformers.integrations import HfDeepSpeedConfig
    config = configuration(job)
    deepspeed.init_distributed("gloo")
    _alive_while_loading = HfDeepSpeedConfig(config)
    engine = deepspeed.initialize(model=common.load_transformers(job), config=config)[0]
    engine.module.eval()
    return common.Loaded(lambda *call: common.greedy(engine.module, *call),
                         common.versions("deepspeed", "torch", "transformers"), warm_up=False)


if __name__ == "__main__":
    common.run(load)
