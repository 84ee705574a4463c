"""llama.cpp through llama-cpp-python's C interface, which has batches; the class has none.

Each prompt is a sequence of one context. Prefill goes prompt by prompt, and a decode step is one
llama_decode over all sequences."""

import common

GROUP = "llama.cpp"
FORM = "gguf"
VARIANTS = {"llama.cpp": {"kv": "float16"}}


class Context:
    def __init__(self, job):
        import ctypes
        import llama_cpp
        import numpy
        self.api, self.numpy = llama_cpp, numpy
        self.quiet = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.quiet, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        options = llama_cpp.llama_model_default_params()
        options.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(job.model.encode(), options)
        if not self.model:
            raise RuntimeError("llama_model_load_from_file gave no model")
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab = llama_cpp.llama_vocab_n_tokens(vocab)
        self.open(job, len(job.prompts), len(job.prompts[0]))

    def open(self, job, sequences, prompt_tokens):
        options = self.api.llama_context_default_params()
        slots = (prompt_tokens + job.new_tokens + 255) // 256 * 256
        options.n_ctx, options.n_seq_max = sequences * slots, sequences
        options.n_batch, options.n_ubatch = max(prompt_tokens, sequences), 512
        options.n_threads = options.n_threads_batch = job.threads
        options.type_k = options.type_v = self.api.GGML_TYPE_F16
        self.context = self.api.llama_init_from_model(self.model, options)
        if not self.context:
            raise RuntimeError(f"llama_init_from_model gave no context for {options.n_ctx} tokens")
        self.batch = self.api.llama_batch_init(options.n_batch, 0, 1)

    def decode(self, rows):
        """rows: (token, position, sequence, whether its logits are wanted)."""
        for i, (token, position, sequence, wanted) in enumerate(rows):
            self.batch.token[i], self.batch.pos[i] = token, position
            self.batch.n_seq_id[i], self.batch.seq_id[i][0] = 1, sequence
            self.batch.logits[i] = wanted
        self.batch.n_tokens = len(rows)
        status = self.api.llama_decode(self.context, self.batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")

    def best(self, row):
        logits = self.api.llama_get_logits_ith(self.context, row)
        return int(self.numpy.ctypeslib.as_array(logits, shape=(self.vocab,)).argmax())

    def generate(self, prompts, new_tokens, before_pass):
        self.api.llama_memory_clear(self.api.llama_get_memory(self.context), True)
        before_pass()
        last, out = len(prompts[0]) - 1, []
        for sequence, ids in enumerate(prompts):
            self.decode([(token, at, sequence, at == last) for at, token in enumerate(ids)])
            out.append([self.best(last)])
        for step in range(1, new_tokens):
            before_pass()
            self.decode([(ids[-1], last + step, row, True) for row, ids in enumerate(out)])
            for row, ids in enumerate(out):
                ids.append(self.best(row))
        return out


def load(job):
    context = Context(job)
    features = context.api.llama_print_system_info().decode()
    return common.Loaded(context.generate, common.versions("llama-cpp-python"),
                         {"built for": " ".join(part.split(" = ")[0].strip()
                                                for part in features.split("|") if " = 1" in part)})


if __name__ == "__main__":
    common.run(load)
