"""What the peers share: the job that they are given, the clock, and the one line that they print.

A peer is a file NAME_peer.py in this folder:

    GROUP = "torch"                           its packages, a group of ../packages.json; None: none
    FORM = "folder"                           the model it reads: folder, gguf or source (as given)
    VARIANTS = {"name-float32": {"dtype": "float32"}}        names in tables: their settings
    def load(job): ...                        gives a Loaded; imports its packages here

It is run as a process of its own, with the job as a file of JSON, and ends with one line
of JSON: a measurement, or the obstacle. Loading is not timed; prefill and decode are, together."""

import dataclasses
import json
import os
import sys
import time
import typing

WARM_UP_TOKENS = 8
MB = 1_000_000


@dataclasses.dataclass
class Job:
    peer: str
    model: str  # what FORM says
    prompts: list  # `batch` lists of token ids, all of one length
    new_tokens: int
    threads: int
    work: str  # a folder for the peer's own files, kept between runs
    settings: dict = dataclasses.field(default_factory=dict)
    budget_bytes: int | None = None  # peak memory of the whole process to stay within
    drop_caches: bool = False  # empty the page cache before each forward pass
    transload: str = ""

    @property
    def dtype(self):
        return self.settings["dtype"]


@dataclasses.dataclass
class Loaded:
    """generate(prompts, new_tokens, before_pass) -> lists of new ids, greedy, end tokens ignored.

    It calls before_pass() before each forward pass. warm_up: a short call before the timed one."""
    generate: typing.Callable
    versions: dict
    settings: dict = dataclasses.field(default_factory=dict)
    warm_up: bool = True


def set_threads(count):
    """Of the libraries that read the environment once: before they are imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(count)
    os.environ["HF_HUB_OFFLINE"] = "1"


def peak_bytes():
    """VmHWM of this process: loading included."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def bytes_read():
    """What this process and the children it waited for had the disks read."""
    with open("/proc/self/io", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("read_bytes"))


def files_below(folder):
    for parent, _, names in os.walk(folder):
        yield from (os.path.join(parent, name) for name in names)


def drop_caches(paths):
    """Empties the page cache, or, where that is denied, leaves out these files. Says which."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("3\n")
        return "dropped before each pass"
    except OSError:
        for path in paths:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return "drop_caches denied: unmapped pages of the model's files dropped before each pass"


class Passes:
    """Called before each forward pass: notes the time and empties the page cache where asked to."""

    def __init__(self, job):
        self.job = job
        self.caches = "kept"
        self.starts = []
        self.spent_s = 0.0  # in emptying the cache; not the peer's

    def __call__(self):
        begin = time.perf_counter()
        if self.job.drop_caches:
            folders = (self.job.model, self.job.work)
            files = [self.job.model] * os.path.isfile(self.job.model)
            files += [path for folder in folders for path in files_below(folder)]
            self.caches = drop_caches(files)
            self.spent_s += time.perf_counter() - begin
        self.starts.append(time.perf_counter() - self.spent_s)

    @property
    def prefill_s(self):
        return self.starts[1] - self.starts[0] if len(self.starts) > 1 else None


def measure(job, loaded):
    """The measurement, as a dictionary."""
    if loaded.warm_up and not job.drop_caches:
        short = [ids[:WARM_UP_TOKENS] for ids in job.prompts]
        loaded.generate(short, 2, lambda: None)
    passes, read_before = Passes(job), bytes_read()
    begin, cpu_before = time.perf_counter(), time.process_time()
    token_ids = loaded.generate(job.prompts, job.new_tokens, passes)
    seconds = time.perf_counter() - begin - passes.spent_s
    return {"seconds": seconds, "prefill_s": passes.prefill_s,
            "timed_cpu_s": time.process_time() - cpu_before,
            "tokens": sum(map(len, token_ids)), "peak_bytes": peak_bytes(),
            "read_bytes": bytes_read() - read_before, "caches": passes.caches,
            "versions": loaded.versions, "settings": {**job.settings, **loaded.settings},
            "token_ids": token_ids}


def one_line(error):
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:300]


def say(line):
    """The last line of standard output, which is the result."""
    sys.stdout.flush()
    print("\n" + json.dumps(line), flush=True)


def run(load, measure_job=measure):
    """The main function of a peer. measure_job(job, what load gave) -> the measurement."""
    with open(sys.argv[1], encoding="utf-8") as file:
        job = Job(**json.load(file))
    set_threads(job.threads)
    os.makedirs(job.work, exist_ok=True)
    try:
        line = measure_job(job, load(job))
    except Exception as error:  # whatever a peer's packages raise is its obstacle
        line = {"obstacle": one_line(error)}
    say(line)
    os._exit(0)  # some packages hang in their own shutdown


def greedy(model, prompts, new_tokens, before_pass):
    """generate() of a transformers model: exactly new_tokens each, end tokens ignored."""
    import torch
    from transformers import StoppingCriteria, StoppingCriteriaList

    class BetweenPasses(StoppingCriteria):
        def __call__(self, input_ids, scores, **_):
            if input_ids.shape[1] < len(prompts[0]) + new_tokens:
                before_pass()
            return torch.zeros(input_ids.shape[0], dtype=torch.bool)

    ids = torch.tensor(prompts)
    before_pass()
    with torch.inference_mode():
        rows = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False,
                              use_cache=True, max_new_tokens=new_tokens, min_new_tokens=new_tokens,
                              stopping_criteria=StoppingCriteriaList([BetweenPasses()]))
    return rows[:, ids.shape[1]:].tolist()


def load_transformers(job, **options):
    """A causal model of a folder, on the CPU, in the variant's type."""
    import torch
    import transformers
    torch.set_num_threads(job.threads)
    transformers.logging.set_verbosity_error()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        job.model, dtype=getattr(torch, job.dtype), **options)
    return model.eval()


def versions(*packages):
    import importlib.metadata
    return {name: importlib.metadata.version(name) for name in packages}
