env = GymnasiumEnv(qenvs.make("qubit/StateTransfer-v0"), normalize_actions=True)
env.action_space  # Box(-1.0, 1.0, (1,), float32)
