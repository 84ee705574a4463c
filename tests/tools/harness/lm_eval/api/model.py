"""What tools/transload_lm.py uses of lm_eval.api.model, for tests without the harness."""

import abc


class CacheHook:
    def __init__(self):
        self.answers = {}

    def add_partial(self, method, request, answer):
        self.answers[method, str(request)] = answer


class LM(abc.ABC):
    def __init__(self):
        self.cache_hook = CacheHook()

    @abc.abstractmethod
    def loglikelihood(self, requests):
        pass

    @abc.abstractmethod
    def loglikelihood_rolling(self, requests):
        pass

    @abc.abstractmethod
    def generate_until(self, requests):
        pass
