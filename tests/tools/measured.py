"""Runs of the command whose memory and time are looked at."""

import ctypes
import json
import os
import subprocess
import tempfile
import time

import support

MIB = 1 << 20


class Run:
    """A finished run: status, out, err, peak_bytes (VmHWM) and seconds."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err
        self.peak_bytes = 0
        self.seconds = 0.0

    @property
    def summary(self):
        return json.loads(self.out)

    @property
    def allowed_bytes(self):
        """What the plan says: both tiers of memory and the process."""
        memory = self.summary["placement"]["memory"]
        return sum(memory.get(tier, {"bytes": 0})["bytes"]
                   for tier in ("device", "host")) + memory["process_bytes"]


def watch(process):
    """Waits for the end; VmHWM, as last seen. (ru_maxrss counts what forked it as well.)"""
    peak = 0
    with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
        while process.poll() is None:
            file.seek(0)
            for line in file.read().splitlines():
                if line.startswith("VmHWM:"):
                    peak = max(peak, int(line.split()[1]) * 1024)
            time.sleep(0.003)
    return peak


class MeasuredTest(support.CommandTest):
    def measure(self, *arguments, before_exec=None, **extra):
        """Runs the command to its end. before_exec: called in the child, before it starts."""
        begin = time.monotonic()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = subprocess.Popen([support.BINARY, *map(str, arguments)], stdout=out,
                                       stderr=err, stdin=subprocess.DEVNULL,
                                       preexec_fn=before_exec, env=self.environment(**extra))
            peak_bytes = watch(process)
            out.seek(0)
            err.seek(0)
            run = Run(process.returncode, out.read().decode(), err.read().decode())
        run.peak_bytes = peak_bytes
        run.seconds = time.monotonic() - begin
        return run

    def run_job(self, model, job, *flags, status=0, **extra):
        """A job to a new file, run.output, with the summary as JSON."""
        path = job if isinstance(job, str) else self.job(job)
        output = self.fresh()
        run = self.measure("generate", "--model", model, "--input", path, "--output", output,
                           "--json", *flags, **extra)
        run.output = output
        self.check_status(run, status)
        return run

    def dry_run(self, model, job, *flags, **extra):
        """(exit status, placement as JSON or None, standard error)."""
        path = job if isinstance(job, str) else self.job(job)
        run = self.measure("generate", "--model", model, "--input", path, "--output",
                           self.path("unused"), "--dry-run", "--json", *flags, **extra)
        return run.status, run.summary if run.status == 0 else None, run.err

    def synth(self, shape, *flags, family="llama"):
        """A new folder with a model of random weights."""
        folder = self.fresh("")
        self.check_status(self.transload("synth", "--family", family, "--shape", shape, "-o",
                                         folder, *flags))
        return folder

    def check_peak(self, run, what=""):
        self.assertLessEqual(run.peak_bytes, run.allowed_bytes,
                             f"{what}: VmHWM {run.peak_bytes / MIB:.1f} MiB, the plan says "
                             f"{run.allowed_bytes / MIB:.1f} MiB")


def token_requests(count, prompt_tokens, max_tokens):
    return [{"id": i, "prompt_token_ids": support.prompt_ids(i, prompt_tokens),
             "max_tokens": max_tokens, "ignore_eos": True} for i in range(count)]


def model_files(folder):
    return sorted(os.path.join(folder, name) for name in os.listdir(folder)
                  if name.endswith(".safetensors"))


def file_bytes(paths):
    return sum(os.path.getsize(path) for path in paths)


def cached_bytes(path):
    """Bytes of a file in the page cache."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                          ctypes.c_int, ctypes.c_long]
    page, size = os.sysconf("SC_PAGESIZE"), os.path.getsize(path)
    pages = (ctypes.c_ubyte * (-(-size // page)))()
    with open(path, "rb") as file:
        at = libc.mmap(None, size, 1, 1, file.fileno(), 0)  # PROT_READ, MAP_SHARED
    if at == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), "mmap")
    failed = libc.mincore(ctypes.c_void_p(at), ctypes.c_size_t(size), pages)
    libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(size))
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return page * sum(state & 1 for state in pages)


def forget(path):
    """Writes a file back and drops it from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
