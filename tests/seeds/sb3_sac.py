import qenvs
from qenvs.wrappers import GymnasiumEnv
from stable_baselines3 import SAC
from stable_baselines3.common.env_util import make_vec_env


def make():
    return GymnasiumEnv(qenvs.make("qubit/StateTransfer-v0"), normalize_actions=True)


env = make_vec_env(make, n_envs=4)
model = SAC("MlpPolicy", env, verbose=1)
model.learn(total_timesteps=20_000)
