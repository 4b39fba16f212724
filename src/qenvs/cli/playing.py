"""`qenvs run`: play one episode open loop."""

import enum
from pathlib import Path
from typing import Annotated, Any

import typer

from qenvs.cli import options, output, results


class Policy(enum.StrEnum):
    """What `qenvs run` can play."""

    reference = "reference"
    zero = "zero"
    random = "random"


PolicyName = Annotated[Policy, typer.Option(help="The textbook pulse, no control, or noise.")]
PulseFile = Annotated[
    Path | None,
    typer.Option("--pulse", metavar="FILE", help="Play a pulse file, in the task it was made for."),
]


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command("run")(run)


def run(
    task: options.TaskId,
    policy: PolicyName = Policy.reference,
    pulse: PulseFile = None,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    x64: options.DoublePrecision = False,
    as_json: options.AsJson = False,
) -> None:
    """Play one episode and print what it reaches."""
    options.use_double_precision(x64)
    given = options.parse_settings(settings)
    if pulse is not None and policy is not Policy.reference:
        raise options.UsageError("give --pulse or --policy, not both")
    if pulse is None:
        env, played = options.make(task, given), policy.value
        actions = _actions(policy, task, env, seed)
    else:
        env, actions = _replayed(pulse, task, given)
        played = str(pulse)
    results.note_truncation(env, actions, seed)
    record = {"task": task, "policy": played, "seed": seed, **play(env, actions, seed)}
    if as_json:
        output.show_json(record)
        return
    output.show_text(f"{task}, {played}, {env.horizon} intervals of {float(env.dt):g}")
    output.show_metrics({"return": record["return"], **record["final"]})


def play(env: Any, actions: Any, seed: int) -> dict[str, Any]:
    """Final info, return and 1-F of actions played open loop."""
    import jax

    key = jax.random.PRNGKey(seed)
    state, rewards = jax.jit(env.rollout)(actions, key)
    final = {name: float(value) for name, value in env.info(state).items()}
    infidelity = 1 - final["fidelity"] if "fidelity" in final else None
    return {"return": float(rewards.sum()), "final": final, "infidelity": infidelity}


def _actions(policy: Policy, task: str, env: Any, seed: int) -> Any:
    import jax
    import jax.numpy as jnp

    shape = (env.horizon, env.action_dim)
    if policy is Policy.zero:
        return jnp.zeros(shape)
    if policy is Policy.random:
        key = jax.random.fold_in(jax.random.PRNGKey(seed), 1)
        return env.action_bound * jax.random.uniform(key, shape, minval=-1.0)
    spec = options.task_spec(task)
    if spec.reference is None:
        raise options.UsageError(f"task {task!r} has no reference pulse; try --policy zero")
    return jnp.asarray(spec.reference_pulse(env))


def _replayed(path: Path, task: str, settings: dict[str, Any]) -> tuple[Any, Any]:
    """The environment of a pulse file, changed by `settings`, and the actions in the file."""
    import jax.numpy as jnp

    from qenvs import pulses

    pulse = pulses.load(path)
    own = pulse.task_kwargs if pulse.task == task else {}
    grid = {"horizon": len(pulse.actions), "dt": pulse.dt}
    env = options.make(task, {**own, **grid, **settings})
    actions, shape = pulse.fitting(env), (env.horizon, env.action_dim)
    if actions.shape != shape:
        raise ValueError(f"{path} holds actions of shape {actions.shape}, this task takes {shape}")
    return env, jnp.asarray(actions)
