"""Policies: a network from an observation to an action, on disk too."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs.controllers import storage

KIND = "policy"


class MLP(eqx.Module):
    """Layers x -> tanh(x W + b), the last one without tanh; float32, batched on the left.

    Attributes:
        weights: one matrix per layer, shape (inputs, outputs).
        biases: one vector per layer, shape (outputs,).
    """

    weights: tuple[Array, ...]
    biases: tuple[Array, ...]

    def __call__(self, x: Array) -> Array:
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = jnp.tanh(x @ weight + bias)
        return x @ self.weights[-1] + self.biases[-1]

    @property
    def sizes(self) -> list[int]:
        """Number of inputs, of units in each hidden layer, of outputs."""
        return [self.weights[0].shape[0], *(weight.shape[1] for weight in self.weights)]


def random_mlp(key: Array, sizes: Sequence[int], last_scale: float = 1.0) -> MLP:
    """A network of these sizes: weights N(0, 1/inputs), the last ones scaled, biases 0."""
    shapes = list(pairwise(sizes))
    scales = [inputs**-0.5 for inputs, _ in shapes]
    scales[-1] *= last_scale
    ends = np.cumsum([inputs * outputs for inputs, outputs in shapes])
    # one draw for all layers: every separate one costs half a second of compilation
    parts = jnp.split(jax.random.normal(key, (ends[-1],), jnp.float32), ends[:-1])
    weights = (
        part.reshape(shape) * scale
        for part, shape, scale in zip(parts, shapes, scales, strict=True)
    )
    return MLP(tuple(weights), tuple(jnp.zeros(outputs, jnp.float32) for _, outputs in shapes))


class Policy(eqx.Module):
    """A deterministic policy: action = bound * clip(network(observation), -1, 1).

    Attributes:
        network: observation -> action in units of the bound.
        bound: half-width of the control range, shape (action_dim,).
    """

    network: MLP
    bound: Array

    def __call__(self, observation: Array) -> Array:
        """The action, shape (action_dim,), in the units of the environment."""
        return jnp.clip(self.network(observation), -1.0, 1.0) * self.bound


def save_policy(
    path: str | Path, policy: Policy, *, task: str, task_kwargs: dict[str, Any] | None = None
) -> None:
    """Write a policy and the task that it is for, as a whole or not at all.

    Args:
        path: the file.
        policy: what to save.
        task: id of the task, as for `qenvs.make`.
        task_kwargs: keyword arguments of the task; they must fit into JSON.
    """
    sizes = policy.network.sizes
    header = {"kind": KIND, "task": task, "task_kwargs": task_kwargs or {}, "sizes": sizes}
    storage.write(path, header, policy)


def load_policy(path: str | Path) -> tuple[Policy, dict[str, Any]]:
    """Read a policy.

    Returns:
        The policy and what was saved with it: "task", "task_kwargs", "sizes".

    Raises:
        ValueError: the file holds no policy.
    """
    header = storage.read_header(path, KIND)
    sizes = header["sizes"]
    like = eqx.filter_eval_shape(
        lambda key: Policy(random_mlp(key, sizes), jnp.zeros(sizes[-1], jnp.float32)),
        jax.random.PRNGKey(0),
    )
    return storage.read_tree(path, like), header
