"""The peers' packages: a virtual environment with PyTorch, and a folder for each other group.

A group is installed once, by the pip of the environment from the index that it is set up for. One
that cannot be installed is the obstacle of its peers and of nobody else. Groups lie apart because
packages change each other: transformers imports DeepSpeed, memory and all, where it finds it."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# llama.cpp is compiled here. Its AMX code dies on some machines that have AMX, and what
# GGML_NATIVE finds includes it: instruction sets are named instead, as /proc/cpuinfo has them.
GGML_SETS = {"sse4_2": "SSE42", "avx": "AVX", "avx2": "AVX2", "fma": "FMA", "f16c": "F16C",
             "bmi2": "BMI2", "avx_vnni": "AVX_VNNI", "avx512f": "AVX512",
             "avx512vbmi": "AVX512_VBMI", "avx512_vnni": "AVX512_VNNI",
             "avx512_bf16": "AVX512_BF16"}


@dataclasses.dataclass
class Group:
    """installs: a list of pip's arguments a call; a list of such lists: the first that works."""
    installs: list
    needs: tuple = ()  # groups that must be there
    own_folder: bool = True
    then: str = ""  # Python to run after it, beside the peers; what fails there, a peer will say


GROUPS = {
    # The CPU build where the index has one: the other brings 4 GB of CUDA libraries.
    "torch": Group([[["torch==2.15.0+cpu"], ["torch==2.15.0"]],
                    ["transformers==5.24.0", "accelerate==1.15.0", "gguf==0.19.0",
                     "safetensors==0.8.0", "setuptools==84.2.1", "wheel==0.48.0"]],
                   own_folder=False),
    "deepspeed": Group([["einops==0.8.2", "hjson==3.1.0", "msgpack==1.2.4", "ninja==1.13.2",
                         "psutil==7.2.2", "py-cpuinfo==9.0.0", "pydantic==2.14.4"],
                        ["--no-deps", "--no-build-isolation", "deepspeed==0.19.8"]], ("torch",),
                       then="import deepspeed_peer; deepspeed_peer.compile_operations()"),
    "airllm": Group([["--no-deps", "airllm==4.0.0", "scipy==1.17.1"]], ("torch",)),
    # pip would take a wheel from its cache whatever CMAKE_ARGS it was built with.
    "llama.cpp": Group([["--no-cache-dir", "llama-cpp-python==0.3.36"]]),
    "chart": Group([["matplotlib==3.11.2"]]),
}


def ggml_flags():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        line = next((line for line in file if line.startswith("flags")), "")
    have = set(line.split())
    return [f"-DGGML_{name}={'ON' if flag in have else 'OFF'}" for flag, name in GGML_SETS.items()]


def build_variables():
    """What pip's builds find in the environment."""
    flags = [f"-DCMAKE_PROJECT_INCLUDE={os.path.join(HERE, 'llama_cpp.cmake')}",
             "-DLLAVA_BUILD=OFF", "-DGGML_NATIVE=OFF", *ggml_flags()]
    return {"CMAKE_ARGS": " ".join(flags), "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count())}


class Environment:
    def __init__(self, folder, say=print):
        self.folder, self.say = folder, say
        self.failed = {}  # group -> why it is not there

    @property
    def python(self):
        return os.path.join(self.folder, "bin", "python")

    def group_folder(self, name):
        return os.path.join(self.folder, "groups", name)

    def variables(self, name):
        """The environment of a process that uses a group (None: none)."""
        if name is None:
            return {}
        folder, path = self.group_folder(name), os.environ.get("PATH", "")
        binaries = [os.path.join(folder, "bin"), os.path.join(self.folder, "bin"), path]
        return {"PYTHONPATH": folder, "PATH": os.pathsep.join(binaries),
                "TORCH_EXTENSIONS_DIR": os.path.join(folder, "extensions")}

    def stamp(self, name):
        return os.path.join(self.folder, "groups", f"{name}.json")

    def has(self, name):
        """Whether what is installed is what this file asks for."""
        try:
            with open(self.stamp(name), encoding="utf-8") as file:
                return json.load(file) == fingerprint(name)
        except (OSError, ValueError):
            return False

    def install(self, name):
        """None, or why the group is not there. Tries once a process."""
        if name is None or self.has(name):
            return None
        if name not in self.failed:
            self.failed[name] = self.install_now(name)
        return self.failed[name]

    def install_now(self, name):
        group = GROUPS[name]
        for needed in group.needs:
            obstacle = self.install(needed)
            if obstacle:
                return obstacle
        if not os.path.exists(self.python):
            self.say(f"making the virtual environment {self.folder}")
            subprocess.run([sys.executable, "-m", "venv", self.folder], check=True)
        os.makedirs(self.group_folder(name), exist_ok=True)
        target = ["--upgrade", "--target", self.group_folder(name)] if group.own_folder else []
        for install in group.installs:
            choices = install if isinstance(install[0], list) else [install]
            obstacles = []
            for choice in choices:
                obstacles.append(self.pip(name, target + choice))
                if obstacles[-1] is None:
                    break
            else:
                return obstacles[-1]
        if group.then:
            self.say(f"compiling what {name} compiles for itself")
            self.call(name, [self.python, "-c", group.then], os.path.join(HERE, "peers"))
        with open(self.stamp(name), "w", encoding="utf-8") as file:
            json.dump(fingerprint(name), file)
        return None

    def pip(self, name, arguments):
        """None, or the last line of pip's errors. All it says goes to groups/NAME.log."""
        self.say(f"installing {' '.join(a for a in arguments if '==' in a)}")
        done, log_path = self.call(name, [self.python, "-m", "pip", "install", *arguments])
        if done.returncode == 0:
            return None
        with open(log_path, encoding="utf-8", errors="replace") as log:
            lines = [line.strip() for line in log if "rror" in line] or ["no message"]
        return f"not installed: {lines[-1][:200]} (all of it: {log_path})"

    def call(self, name, command, folder=None):
        """Runs a command for a group; what it says is added to groups/NAME.log, also given."""
        log_path = os.path.join(self.folder, "groups", f"{name}.log")
        variables = {**os.environ, **self.variables(name), **build_variables()}
        with open(log_path, "a", encoding="utf-8") as log:
            done = subprocess.run(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                  env=variables, cwd=folder, check=False)
        return done, log_path


def fingerprint(name):
    """What decides whether a group must be installed again."""
    build = build_variables()["CMAKE_ARGS"] if name == "llama.cpp" else ""
    text = json.dumps([GROUPS[name].installs, build.replace(HERE, "")])
    return {"installs": GROUPS[name].installs, "sha256": hashlib.sha256(text.encode()).hexdigest()}
