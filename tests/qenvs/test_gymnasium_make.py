"""The tasks by name in Gymnasium, in other processes, and with 64-bit floats."""

import os
import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest

from episodes import calls, ends, play
from qenvs.wrappers import GymnasiumEnv
from qenvs.wrappers.vector import GymnasiumVectorEnv
from systems import Walk

TASK = "qubit/StateTransfer-v0"
ONES = np.ones((2, 1), np.float32)


def test_gymnasium_make():
    env = gymnasium.make(TASK, horizon=3, normalize_actions=True, seed=4)
    inner = env.unwrapped
    assert isinstance(inner, GymnasiumEnv) and inner.env.horizon == 3
    assert env.spec.id == TASK and env.spec.max_episode_steps is None
    returned = play(env, np.ones((5, 1), np.float32))
    assert len(returned) == 4 and returned[-1][2:4] == (True, False)
    np.testing.assert_allclose(returned[-1][4]["fidelity"], np.sin(0.3) ** 2, atol=1e-6)


def test_gymnasium_make_refuses_unknown_arguments():
    with pytest.raises(TypeError, match="'detunning'; did you mean 'detuning'"):
        gymnasium.make(TASK, detunning=0.1)


def test_TB_5_max_episode_steps_truncates_there():
    env = gymnasium.make(TASK, max_episode_steps=2, horizon=4)
    returned = play(env, np.ones((5, 1), np.float32))
    assert [step[2:4] for step in returned[1:]] == [(False, False), (False, True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        never = gymnasium.wrappers.TimeLimit(GymnasiumEnv(Walk(horizon=10**9)), 5)
    recorded = gymnasium.wrappers.RecordEpisodeStatistics(never)
    returned = play(recorded, np.ones((9, 1), np.float32))
    assert [step[2:4] for step in returned[1:]] == [(False, False)] * 4 + [(False, True)]
    assert returned[-1][4]["episode"]["l"] == 5 and returned[-1][4]["episode"]["r"] == 5


@pytest.mark.parametrize(
    "code",
    [
        "import gymnasium; env = gymnasium.make('qenvs:qubit/StateTransfer-v0')",
        "import gymnasium, qenvs; gymnasium.register_envs(qenvs)\n"
        "env = gymnasium.make('qubit/StateTransfer-v0')",
    ],
    ids=["module prefix", "register_envs"],
)
def test_ids_are_known_in_a_fresh_process(code):
    code += "\nenv.reset(seed=0); print(env.step(env.action_space.sample())[3])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"


@pytest.mark.claims("G-IF-10")
def test_sync_vector_env_takes_it():
    from gymnasium.vector import SyncVectorEnv

    envs = SyncVectorEnv([lambda s=s: GymnasiumEnv(Walk(), seed=s) for s in range(2)])
    observation, _ = envs.reset()
    for b in range(2):
        np.testing.assert_array_equal(observation[b], GymnasiumEnv(Walk(), seed=b).reset()[0])
    ends = [envs.step(np.ones((2, 1), np.float32))[2].tolist() for _ in range(8)]
    assert [k for k, end in enumerate(ends) if all(end)] == [2, 6]
    envs.close()


WORKERS = """
import functools
import gymnasium
import numpy as np

def build(seed):
    import qenvs
    from qenvs.wrappers import GymnasiumEnv
    return GymnasiumEnv(qenvs.make("qubit/StateTransfer-v0", horizon=2), seed=seed)

if __name__ == "__main__":
    from gymnasium.vector import AsyncVectorEnv
    builders = [functools.partial(build, seed) for seed in range(2)]
    envs = AsyncVectorEnv(builders, context={context!r}, shared_memory=True)
    envs.reset(seed=0)
    for _ in range(2):
        _, _, terminated, _, infos = envs.step(np.full((2, 1), np.pi / 4, np.float32))
    assert terminated.all()
    np.testing.assert_allclose(infos["fidelity"], np.sin(np.pi / 40) ** 2, atol=1e-6)
    envs.close()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.claims("G-IF-10")
@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_VE_14_worker_processes_without_fork(tmp_path, context):
    script = tmp_path / "workers.py"
    script.write_text(WORKERS.format(context=context))
    command = [sys.executable, str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


X64 = """
import jax, numpy as np
assert jax.config.jax_enable_x64
import qenvs
from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.wrappers import GymnasiumEnv, GymnasiumVectorEnv
from systems import Custom, Walk, rabi_fidelities

actions = np.random.default_rng(1).uniform(-1, 1, (20, 1)).astype(np.float32)
env = qenvs.make("qubit/StateTransfer-v0", action_bound=1.3)
one, many = GymnasiumEnv(env, normalize_actions=True), GymnasiumVectorEnv(env, 2)
assert one.reset()[0].dtype == many.reset()[0].dtype == np.float32
for action in actions:
    observation, reward, *_, info = one.step(action)
    product = action * np.float32(1.3)
    batch, rewards, terminated, _, infos = many.step(np.stack([product, product]))
    assert observation.dtype == batch.dtype == rewards.dtype == np.float32
    assert type(reward) is float and info["fidelity"].dtype == infos["fidelity"].dtype == np.float64
    assert (batch == observation).all() and (infos["fidelity"] == info["fidelity"]).all()
    assert (rewards == np.float32(reward)).all()
exact = rabi_fidelities(actions * np.float32(1.3))
assert abs(info["fidelity"] - exact[-1]) < 1e-13, info["fidelity"] - exact[-1]
assert terminated.all()

custom = StateTransfer(Custom(), 3, 0.1, 1.0, target=basis_ket(3, 1))
state, _ = custom.reset(jax.random.PRNGKey(0))
state, timestep = custom.step(state, np.ones(2))
assert timestep.observation.dtype == np.float32 and state.array.dtype == np.complex128
assert timestep.reward.dtype == np.float64

walk = Walk()
start = GymnasiumEnv(walk, seed=3).reset()[0]
print(start.tobytes().hex())
"""


@pytest.mark.claims("G-Q4", "G-Q11")
def test_SE_2_observations_stay_float32_with_x64():
    environment = {**os.environ, "JAX_ENABLE_X64": "1"}
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    environment["PYTHONPATH"] = os.pathsep.join([here, *filter(None, sys.path)])
    command = [sys.executable, "-c", X64]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    start = GymnasiumEnv(Walk(), seed=3).reset()[0]
    assert done.stdout.strip() == start.tobytes().hex()  # the same draws as without x64


def test_gymnasium_make_vec():
    envs = gymnasium.make_vec(TASK, num_envs=3, horizon=4, normalize_actions=True, seed=1)
    assert isinstance(envs.unwrapped, GymnasiumVectorEnv)
    assert envs.num_envs == 3 and envs.env.horizon == 4 and envs.normalize_actions
    returned = calls(envs, 9, actions=np.ones((3, 1)))
    assert ends(returned) == [3, 8] and not any(step[3].any() for step in returned[1:])
    np.testing.assert_allclose(returned[4][4]["fidelity"], np.sin(0.4) ** 2, atol=1e-6)


def test_TB_5_max_episode_steps_of_make_vec():
    envs = gymnasium.make_vec(TASK, num_envs=2, max_episode_steps=3)
    returned = calls(envs, 8, actions=ONES)
    flags = [(step[2].all(), step[3].all()) for step in returned[1:]]
    assert [k for k, (_, cut) in enumerate(flags) if cut] == [2, 6]
    assert not any(ended for ended, _ in flags)


def test_make_vec_of_single_environments():
    envs = gymnasium.make_vec(TASK, num_envs=2, vectorization_mode="sync", horizon=2)
    envs.reset(seed=0)
    assert [envs.step(ONES)[2].all() for _ in range(3)] == [False, True, False]
    envs.close()


def test_make_vec_refuses_unknown_arguments():
    with pytest.raises(TypeError, match="'detunning'; did you mean 'detuning'"):
        gymnasium.make_vec(TASK, num_envs=2, detunning=0.1)
    with pytest.raises(ValueError, match="does not render, got render_mode='rgb_array'"):
        gymnasium.make_vec(TASK, num_envs=2, render_mode="rgb_array")


def test_make_vec_in_a_fresh_process():
    code = (
        "import gymnasium; envs = gymnasium.make_vec('qenvs:qubit/StateTransfer-v0', num_envs=2)\n"
        "envs.reset(seed=0); print(type(envs.unwrapped).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "GymnasiumVectorEnv"
