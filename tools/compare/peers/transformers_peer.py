"""Transformers, all weights in memory."""

import common

GROUP = "torch"
FORM = "folder"
VARIANTS = {f"transformers-{dtype}": {"dtype": dtype}
            for dtype in ("float32", "bfloat16", "float16")}


def load(job):
    model = common.load_transformers(job)
    return common.Loaded(lambda *call: common.greedy(model, *call),
                         common.versions("torch", "transformers"))


if __name__ == "__main__":
    common.run(load)
