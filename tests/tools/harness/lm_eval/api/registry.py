"""What tools/transload_lm.py uses of lm_eval.api.registry, for tests without the harness."""

MODELS = {}


def register_model(*names):
    def register(model):
        MODELS.update(dict.fromkeys(names, model))
        return model
    return register


def get_model(name):
    return MODELS[name]
