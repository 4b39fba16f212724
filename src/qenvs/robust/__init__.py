"""How a pulse or a policy does over many devices: statistics of episodes that differ.

Put what may go wrong around a task (`ParameterRandomization`, `ControlErrors`, an
`ObservationModel`), then `evaluate` plays n episodes. Episode i has the key
`keys.episode_key(key, i)` and nothing else to draw from, so that any of them can be played again:
the worst device of an evaluation is one `env.reset` away.
"""

from qenvs.robust.evaluation import Evaluation, evaluate
from qenvs.robust.policies import Batched
from qenvs.robust.statistics import Statistics

__all__ = ["Batched", "Evaluation", "Statistics", "evaluate"]
