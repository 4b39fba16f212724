import numpy as np

import qenvs
from qenvs.wrappers.vector import GymnasiumVectorEnv

num_envs = 8
envs = GymnasiumVectorEnv(
    qenvs.make("qubit/StateTransfer-v0", horizon=20, dt=0.1),
    num_envs,
    seed=0,
    normalize_actions=True,
)
envs.action_space.seed(0)  # makes the random policy, and so the output below, deterministic
obs, _ = envs.reset(seed=0)
episodic_return = np.zeros(num_envs)
finished = []
for _ in range(3 * 21):  # 3 episodes (20 steps + 1 autoreset step each)
    actions = envs.action_space.sample()  # replace by policy(obs)
    obs, rewards, terminations, truncations, infos = envs.step(actions)
    episodic_return += rewards
    for i in np.flatnonzero(terminations | truncations):
        finished.append((episodic_return[i], infos["fidelity"][i]))
        episodic_return[i] = 0.0
print(len(finished), "episodes, mean return", np.mean([r for r, _ in finished]))
