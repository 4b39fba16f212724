"""How many environment steps per second does the torch loop make, and what does the bridge cost?

    python benchmarks/torch_throughput.py
    python benchmarks/torch_throughput.py --published path/to/venv/bin/python

The loop is `step = env.step(actions)` with actions ready and no learning. With `--published`, an
interpreter that has the published `rl-mind` and `qenvs` runs the same loop in a process of its own.
All cases are warmed up and then take short turns, so that a busy machine treats them alike. Ratios
are taken within a round, and their median is reported.
"""

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

SECONDS = 0.1  # per case and round
Step = Callable[[], Any]


def torch_loop(name: str, num_envs: int, **kwargs: Any) -> Step:
    """The loop that is measured, with whichever `rl_mind` this interpreter has."""
    import torch

    from rl_mind.env import VecEnv

    torch.set_num_threads(1)
    env = VecEnv(name, num_envs, seed=0, **kwargs)
    env.reset()
    discrete = torch.arange(num_envs) % 2
    actions = torch.zeros(num_envs, env.action_dim) if env.is_continuous else discrete
    return lambda: env.step(actions)


def numpy_loop(task: str, num_envs: int) -> Step:
    """The batched environment itself, without torch."""
    import gymnasium
    import numpy as np

    env = gymnasium.make_vec(
        f"qenvs:{task}",
        num_envs,
        vectorization_mode="vector_entry_point",
        autoreset_mode="SameStep",
        normalize_actions=True,
    )
    env.reset(seed=0)
    actions = np.zeros(env.action_space.shape or (), np.float32)
    return lambda: env.step(actions)


def bridge_loop(task: str, num_envs: int) -> Step:
    """`VecEnv` over the batched environment."""
    return torch_loop(f"qenvs:{task}", num_envs, same_step_reset=True, normalize_actions=True)


def published_quantum_loop(task: str, num_envs: int) -> Step:
    """The published pair knows no common id: register one."""
    import gymnasium

    import qenvs
    from qenvs.wrappers import GymnasiumEnv

    def make(**_: Any) -> Any:
        return GymnasiumEnv(qenvs.make(task), normalize_actions=True)

    name = f"bench/{task.split('/')[1]}"
    gymnasium.register(name, make)
    return torch_loop(name, num_envs, same_step_reset=True)


def cartpole_loop(**kwargs: Any) -> Step:
    return torch_loop("CartPole-v1", 128, **kwargs)


QUANTUM = ("qubit/StateTransfer-v0", "transmon/XGate-v0")
RAW, BRIDGE, PUBLISHED_64 = (
    "1024 envs, GymnasiumVectorEnv",
    "1024 envs, VecEnv",
    "64 envs, published",
)
SYNC = "CartPole-v1, 128 envs, VecEnv, sync"
BATCHED = "CartPole-v1, 128 envs, VecEnv, vector entry point"
CARTPOLE_PUBLISHED = "CartPole-v1, 128 envs, published"
OURS: dict[str, Callable[[], Step]] = {
    **{f"{task}, {RAW}": partial(numpy_loop, task, 1024) for task in QUANTUM},
    **{f"{task}, {BRIDGE}": partial(bridge_loop, task, 1024) for task in QUANTUM},
    SYNC: partial(cartpole_loop, vectorization_mode="sync"),
    BATCHED: partial(cartpole_loop, vectorization_mode="vector_entry_point"),
}
PUBLISHED: dict[str, Callable[[], Step]] = {
    **{f"{task}, {PUBLISHED_64}": partial(published_quantum_loop, task, 64) for task in QUANTUM},
    CARTPOLE_PUBLISHED: cartpole_loop,
}
RATIOS = (
    *((f"{task}, {BRIDGE}", f"{task}, {RAW}") for task in QUANTUM),
    *((f"{task}, {BRIDGE}", f"{task}, {PUBLISHED_64}") for task in QUANTUM),
    (SYNC, CARTPOLE_PUBLISHED),
    (BATCHED, CARTPOLE_PUBLISHED),
)


def serve(cases: dict[str, Callable[[], Step]]) -> None:
    """Measure the case named by each line that comes in, in environment steps per second."""
    loops = {case: build() for case, build in cases.items()}
    for step in loops.values():
        for _ in range(50):
            step()
    print("ready", flush=True)
    for line in sys.stdin:
        case = line.strip()
        num_envs = int(case.split(", ")[1].split()[0])
        calls, start = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - start) < SECONDS:
            loops[case]()
            calls += 1
        print(num_envs * calls / elapsed, flush=True)


class Worker:
    """An interpreter that measures its cases when asked."""

    def __init__(self, python: str, which: str) -> None:
        # -E: the published interpreter must not see our sources through PYTHONPATH
        command = [python, *(["-E"] if which == "published" else []), __file__, "--serve", which]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        if self._line() != "ready":
            raise SystemExit(f"the {which} cases did not start under {python}")

    def _line(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def measure(self, case: str) -> float:
        assert self.process.stdin
        self.process.stdin.write(case + "\n")
        self.process.stdin.flush()
        return float(self._line())


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the torch loop.")
    parser.add_argument("--published", metavar="PYTHON", help="interpreter with rl-mind and qenvs")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--serve", choices=["ours", "published"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(OURS if arguments.serve == "ours" else PUBLISHED)
    workers = dict.fromkeys(OURS, Worker(sys.executable, "ours"))
    if arguments.published:
        workers |= dict.fromkeys(PUBLISHED, Worker(arguments.published, "published"))
    rates: dict[str, list[float]] = {case: [] for case in workers}
    for _ in range(arguments.rounds):
        for case, worker in workers.items():
            rates[case].append(worker.measure(case))
    for worker in set(workers.values()):
        worker.process.communicate()
    report(rates)


def report(rates: dict[str, list[float]]) -> None:
    print("| case | median, env steps/s | best |\n| --- | ---: | ---: |")
    for case, found in rates.items():
        print(f"| {case} | {statistics.median(found):,.0f} | {max(found):,.0f} |")
    print("\n| ratio | median over rounds |\n| --- | ---: |")
    for case, other in RATIOS:
        if other in rates:
            pairs = [a / b for a, b in zip(rates[case], rates[other], strict=True)]
            print(f"| {case} / {other} | {statistics.median(pairs):.2f} |")


if __name__ == "__main__":
    main()
