"""Stable-Baselines3 accepts the environments and learns on them."""

import numpy as np
import pytest

import qenvs
from qenvs.wrappers import GymnasiumEnv

sb3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("dicts", [False, True])
@pytest.mark.filterwarnings("ignore:.*jax:UserWarning")
def test_its_checker_finds_nothing(dicts, recwarn):
    from stable_baselines3.common.env_checker import check_env

    env = GymnasiumEnv(
        qenvs.make("qubit/StateTransfer-v0"), normalize_actions=True, dict_observation=dicts
    )
    check_env(env)
    assert not [str(w.message) for w in recwarn if "recommend" in str(w.message)]


@pytest.mark.claims("G-SB-1")
def test_sac_learns_through_its_vector_environments():
    from stable_baselines3.common.env_util import make_vec_env

    def make() -> GymnasiumEnv:
        return GymnasiumEnv(qenvs.make("qubit/StateTransfer-v0", horizon=5), normalize_actions=True)

    envs = make_vec_env(make, n_envs=2)
    model = sb3.SAC("MlpPolicy", envs, learning_starts=20, seed=0)
    before = [p.detach().numpy().copy() for p in model.policy.parameters()]
    model.learn(total_timesteps=60)
    after = [p.detach().numpy() for p in model.policy.parameters()]
    assert model.num_timesteps == 60
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
