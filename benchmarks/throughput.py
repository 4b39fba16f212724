"""Env-steps per second, side by side with another implementation of the same interface.

    python benchmarks/throughput.py [--rival PYTHON] [--only PATTERN] [--seconds S] [--rounds N]

Each case runs in two worker processes, this interpreter and the rival's, which take turns; the
table shows the median rate of each and the median of the ratios of neighbouring turns, after
compilation, with results waited for. Without --rival the published qenvs 0.3.2 is installed into
`.venv-rival` first and used as a black box.
"""

import argparse
import fnmatch
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
RIVAL = "qenvs[gym]==0.3.2"
QUBIT = "qubit/StateTransfer-v0"

Run = tuple[Callable[[], Any], int]
"""What to time: a function, and the env-steps that one call of it makes."""


class Case(NamedTuple):
    """A row of the table: what is built (in the worker), and the ratio it must reach."""

    title: str
    build: Callable[..., Run]
    arguments: tuple[Any, ...]
    target: float


def gymnasium_single() -> Run:
    """GymnasiumEnv with a zero action; a call is one step (or one reset at the end)."""
    import numpy as np

    import qenvs
    from qenvs.wrappers import GymnasiumEnv

    env = GymnasiumEnv(qenvs.make(QUBIT), normalize_actions=True)
    action = np.zeros(1, np.float32)
    env.reset()

    def step() -> None:
        if env.step(action)[2]:
            env.reset()

    return step, 1


def gymnasium_vector(num_envs: int) -> Run:
    """GymnasiumVectorEnv with zero actions, autoreset included."""
    import numpy as np

    import qenvs
    from qenvs.wrappers.vector import GymnasiumVectorEnv

    envs = GymnasiumVectorEnv(qenvs.make(QUBIT), num_envs, normalize_actions=True)
    actions = np.zeros((num_envs, 1), np.float32)
    envs.reset()
    return lambda: envs.step(actions), num_envs


def functional(batch: int, task: str, **kwargs: Any) -> Run:
    """jit(vmap(step)) with random actions inside the bound, from the initial state."""
    import qenvs

    return _functional(qenvs.make(task, **kwargs), batch, zero=task == QUBIT and not kwargs), batch


def wrapped(batch: int, shots: int | None) -> Run:
    """The qubit with a random detuning, control errors and, with `shots`, measured p1."""
    import qenvs
    from qenvs import distributions as d
    from qenvs import wrappers as w

    env = w.ParameterRandomization(qenvs.make(QUBIT), {"detuning": d.Normal(0.05)})
    env = w.ControlErrors(env, d.Normal(0.02), d.Normal(0.01), d.Normal(0.02))
    if shots is not None:
        env = w.ObservationModel(env, "expectations", shots=shots, observables=["p1"])
    return _functional(env, batch), batch


def _functional(env: Any, batch: int, zero: bool = False) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.PRNGKey(0), batch))
    shape = (batch, env.action_dim)
    actions = jax.random.uniform(jax.random.PRNGKey(1), shape, minval=-1.0, maxval=1.0)
    actions = jnp.zeros(shape) if zero else actions * jnp.asarray(env.action_bound)
    step = jax.jit(jax.vmap(env.step))
    return lambda: jax.block_until_ready(step(state, actions))


def episodes(batch: int) -> Run:
    """Whole episodes with random actions drawn inside one jit: scan under vmap."""
    import jax

    import qenvs

    env = qenvs.make(QUBIT)

    def episode(key: Any) -> Any:
        state, _ = env.reset(key)
        actions = jax.random.uniform(key, (env.horizon, 1), minval=-2.0, maxval=2.0)

        def step(state: Any, action: Any) -> Any:
            state, timestep = env.step(state, action)
            return state, timestep.reward

        return jax.lax.scan(step, state, actions)[1].sum()

    play, keys = jax.jit(jax.vmap(episode)), jax.random.split(jax.random.PRNGKey(1), batch)
    return lambda: jax.block_until_ready(play(keys)), batch * env.horizon


T1_T2 = {"t1_us": 50.0, "t2_us": 30.0}
CR_T1_T2 = {"t1_c_us": 50.0, "t2_c_us": 30.0, "t1_t_us": 50.0, "t2_t_us": 30.0}
DICKE_OPEN = {"kappa": 0.05, "gamma": 0.02, "gamma_phi": 0.02}

CASES = {
    "single": Case("GymnasiumEnv, 1 env", gymnasium_single, (), 8),
    **{
        f"vector{n}": Case(f"GymnasiumVectorEnv, {n} env(s)", gymnasium_vector, (n,), 8)
        for n in (1, 64, 1024)
    },
    "functional": Case("functional jit(vmap(step)), 1024", functional, (1024, QUBIT), 5),
    "episodes": Case("random episodes inside one jit, 1024", episodes, (1024,), 12),
}


def task_case(task: str, target: float, **kwargs: Any) -> Case:
    """A row for one task at batch 256."""
    kind = "open" if kwargs else "closed"
    title = f"{task}, {kind}, functional, 256"
    return Case(title, lambda: functional(256, task, **kwargs), (), target)


CASES |= {
    "task-qubit": task_case(QUBIT, 8),
    "task-qubit-open": task_case(QUBIT, 8, gamma1=0.05, gamma_phi=0.02),
    "task-battery": task_case("battery/TwoLevel-v0", 8),
    "task-battery-open": task_case("battery/TwoLevel-v0", 8, gamma1=0.05, n_th=0.1, gamma_phi=0.02),
    "task-lambda": task_case("transfer/LambdaSTIRAP-v0", 8),
    "task-lambda-open": task_case("transfer/LambdaSTIRAP-v0", 8, gamma=0.5),
    "task-x": task_case("transmon/XGate-v0", 8),
    "task-x-open": task_case("transmon/XGate-v0", 8, **T1_T2),
    "task-sx": task_case("transmon/SXGate-v0", 8),
    "task-cr": task_case("transmon/CRGate-v0", 3),
    "task-cr-open": task_case("transmon/CRGate-v0", 8, **CR_T1_T2),
    "task-dicke": task_case("battery/Dicke-v0", 8),
    "task-dicke-open": task_case("battery/Dicke-v0", 8, **DICKE_OPEN),
    "task-dicke-local": task_case("battery/DickeLocal-v0", 100),
    "wrapped": Case("qubit, parameters and controls random, 1024", wrapped, (1024, None), 5),
    "measured": Case("the same, 100 shots of p1, 1024", wrapped, (1024, 100), 3),
}


def measure(run: Callable[[], Any], seconds: float) -> float:
    """Calls per second over about `seconds`."""
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        run()
        calls += 1
    return calls / elapsed


def work() -> None:
    """Worker: for each line `{"case", "seconds"}` on stdin, one line with the rate."""
    ready: dict[str, Run] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["case"] not in ready:
                case = CASES[request["case"]]
                ready.clear()
                ready[request["case"]] = case.build(*case.arguments)
                ready[request["case"]][0]()
            run, steps = ready[request["case"]]
            answer = {"rate": measure(run, request["seconds"]) * steps}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


class Worker:
    """An interpreter that measures cases on request."""

    def __init__(self, python: str) -> None:
        env = worker_environment(python)
        command = [python, __file__, "--worker"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": env}
        self.process = subprocess.Popen(command, cwd="/", **pipes)

    def rate(self, case: str, seconds: float) -> float:
        """Env-steps per second; RuntimeError with what the worker said if it cannot."""
        self.process.stdin.write(json.dumps({"case": case, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline() or '{"error": "the worker died"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["rate"]

    def stop(self) -> None:
        """End the interpreter."""
        self.process.stdin.close()
        self.process.wait()


FIRST_STEP = """
import time; start = time.perf_counter()
import qenvs, jax
env = qenvs.make("qubit/StateTransfer-v0")
state, _ = env.reset(jax.random.PRNGKey(0))
jax.block_until_ready(env.step(state, jax.numpy.zeros(1)))
print(time.perf_counter() - start)
"""


def worker_environment(python: str) -> dict[str, str]:
    """CPU by default; for the rival without PYTHONPATH, which could put this library in front."""
    env = {"JAX_PLATFORMS": "cpu", **os.environ}
    if python != sys.executable:
        env.pop("PYTHONPATH", None)
    return env


def first_step_seconds(python: str) -> float:
    """From `import qenvs` to the end of the first step, in a fresh process."""
    command = [python, "-c", FIRST_STEP]
    return float(
        subprocess.check_output(command, cwd="/", text=True, env=worker_environment(python))
    )


def first_step_row(pythons: tuple[str, str], rounds: int) -> str:
    """Seconds from `import qenvs` to the end of the first step, in fresh processes."""
    seconds = [[first_step_seconds(python) for python in pythons] for _ in range(rounds)]
    ours, theirs = (statistics.median(column) for column in zip(*seconds, strict=True))
    ratio = statistics.median(b / a for a, b in seconds)
    return f"| import and first step | {ours:.1f} s | {theirs:.1f} s | {ratio:.1f} | 3 |"


def share_row(seconds: float, rounds: int) -> str:
    """How much of the bare rate is left with random parameters and controls, in turns."""
    workers = {name: Worker(sys.executable) for name in ("wrapped", "functional")}
    turns = [
        [worker.rate(name, seconds) for name, worker in workers.items()] for _ in range(rounds)
    ]
    for worker in workers.values():
        worker.stop()
    wrapped, bare = (statistics.median(column) for column in zip(*turns, strict=True))
    share = statistics.median(a / b for a, b in turns)
    title = "random parameters and controls (left) next to the bare qubit (right), 1024"
    return f"| {title} | {wrapped:.3g} | {bare:.3g} | {share:.2f} | 0.5 |"


def case_row(name: str, workers: tuple[Worker, Worker], seconds: float, rounds: int) -> str:
    """One row: rates of both, ratio, target."""
    case = CASES[name]
    try:
        turns = [[worker.rate(name, seconds) for worker in workers] for _ in range(rounds)]
    except RuntimeError as error:
        return f"| {case.title} | {error} | | | {case.target:g} |"
    ours, theirs = (statistics.median(column) for column in zip(*turns, strict=True))
    ratio = statistics.median(a / b for a, b in turns)
    return f"| {case.title} | {ours:.3g} | {theirs:.3g} | {ratio:.1f} | {case.target:g} |"


def rival_python() -> str:
    """Interpreter of `.venv-rival`, made on first use."""
    folder = ROOT / ".venv-rival"
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"installing {RIVAL} into {folder}", file=sys.stderr)
        subprocess.check_call([sys.executable, "-m", "venv", str(folder)])
        subprocess.check_call([str(python), "-m", "pip", "install", "--quiet", RIVAL])
    return str(python)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rival", help="interpreter of the other implementation")
    parser.add_argument(
        "--only", default="*", help="cases to run, a shell pattern or several with commas"
    )
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work()
    pythons = sys.executable, options.rival or rival_python()
    patterns = options.only.split(",")
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, CPU, float32\n")
    print("| env-steps/s | this library | qenvs 0.3.2 | ratio | target |\n|---|---|---|---|---|")
    if any(fnmatch.fnmatch("import", p) for p in patterns):
        print(first_step_row(pythons, options.rounds), flush=True)
    workers = Worker(pythons[0]), Worker(pythons[1])
    for name in CASES:
        if any(fnmatch.fnmatch(name, p) for p in patterns):
            print(case_row(name, workers, options.seconds, options.rounds), flush=True)
    for worker in workers:
        worker.stop()
    if any(fnmatch.fnmatch("share", p) for p in patterns):
        print(share_row(options.seconds, options.rounds))


if __name__ == "__main__":
    main()
