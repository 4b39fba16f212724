"""PPO against hand-computed numbers, and training runs that survive being killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import qenvs
from qenvs.controllers import (
    Policy,
    PPOConfig,
    load_policy,
    play,
    ppo,
    save_policy,
    storage,
    train,
    training,
)
from qenvs.controllers.policy import random_mlp
from qenvs.wrappers import Wrapper
from systems import Walk

SMALL = PPOConfig(num_updates=12, num_envs=8, num_minibatches=2, epochs=2, width=16, depth=1)
KEY = jax.random.PRNGKey(3)


class Endless(Wrapper):
    """Never says that an episode is over."""

    def step(self, state, action):
        state, timestep = super().step(state, action)
        return state, timestep._replace(done=jnp.zeros((), bool))


def collected(env, config=SMALL):
    """A learner, the batch of its first episodes, (horizon, episodes), and their scores."""
    learner = ppo.initialise(env, config, KEY)
    keys = jax.random.split(KEY, config.num_envs)
    gather = jax.jit(partial(ppo.collect, env, config))
    return learner, *gather(learner.networks, jax.random.PRNGKey(4), keys)


# --- advantages ---


@pytest.mark.parametrize(
    ("terminated", "expected"), [(False, [0, 0, 0]), (True, [-87.5695, -93.1095, -99])]
)
def test_TB_2_only_a_true_end_stops_the_bootstrap(terminated, expected):
    ends = jnp.array([False, False, terminated])
    advantage = ppo.gae(jnp.ones(3), jnp.full(4, 100.0), ends, 0.99, 0.95)
    np.testing.assert_allclose(advantage, expected, atol=2e-4)


@pytest.mark.parametrize(("terminated", "target"), [(False, 50.5), (True, 1.0)])
def test_TB_3_targets_of_one_step(terminated, target):
    value = jnp.array([7.0, 50.0])
    advantage = ppo.gae(jnp.ones(1), value, jnp.array([terminated]), 0.99, 0.0)
    np.testing.assert_allclose(advantage + value[:1], [target], rtol=1e-6)


def test_advantages_of_an_episode_that_ends_within_the_batch():
    reward, value = jnp.array([1.0, 2.0, 4.0]), jnp.array([0.5, 1.0, 8.0, 16.0])
    advantage = ppo.gae(reward, value, jnp.array([False, True, False]), 0.5, 0.5)
    # backwards: 4 + 8 - 8; 2 - 1 at the end; 1 + 0.5 - 0.5 + 0.25 * 1
    np.testing.assert_allclose(advantage, [1.25, 1.0, 4.0])


@pytest.mark.parametrize(("env", "bootstraps"), [(Walk(), False), (Endless(Walk()), True)])
def test_TB_9_what_goes_on_beyond_the_horizon_bootstraps_from_its_last_observation(env, bootstraps):
    config = PPOConfig(num_envs=4, num_minibatches=1, gae_lambda=0.0, discount=0.5)
    learner, batch, _ = collected(env, config)
    last = batch.observation[-1].at[:, 2].add(jnp.clip(2 * batch.sample[-1, :, 0], -2, 2))
    after = learner.networks.value(last.at[:, 3].add(1.0))
    reward = jnp.clip(2 * batch.sample[-1, :, 0], -2, 2)
    expected = reward + (0.5 * after if bootstraps else 0)
    np.testing.assert_allclose(batch.target[-1], expected, rtol=1e-5, atol=1e-6)


# --- the sample and its probability ---


def test_SE_6_the_environment_clips_and_the_log_probability_is_of_the_unclipped_sample():
    config = PPOConfig(num_envs=8, initial_std=3.0)
    learner, batch, scores = collected(Walk(), config)
    assert np.abs(batch.sample).max() > 2
    density = norm.logpdf(batch.sample, learner.networks.actor(batch.observation), 3.0)
    np.testing.assert_allclose(batch.log_prob, density.sum(axis=-1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scores, np.clip(2 * batch.sample, -2, 2).sum((0, 2)), rtol=1e-5)


@pytest.mark.parametrize("task", ["walk", "qubit/StateTransfer-v0"])
def test_TB_14_the_first_ratio_is_exactly_one(task):
    env = Walk() if task == "walk" else qenvs.make(task)
    config = PPOConfig(num_envs=16, num_minibatches=4)
    learner, batch, _ = collected(env, config)
    flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)
    rows = jax.random.permutation(KEY, flat.weight.size).reshape(4, -1)

    @jax.jit
    def ratio(networks, rows):
        return jnp.exp(
            networks.log_prob(flat.observation[rows], flat.sample[rows]) - flat.log_prob[rows]
        )

    for part in rows:
        np.testing.assert_array_equal(ratio(learner.networks, part), 1.0)


def test_the_gradient_is_the_policy_gradient_while_the_ratio_is_one():
    config = PPOConfig(num_envs=64, depth=0, value_coefficient=0.0)
    learner, batch, _ = collected(Walk(), config)
    flat = jax.tree.map(lambda x: np.asarray(x.reshape(-1, *x.shape[2:]), float), batch)
    gradient = jax.grad(ppo.loss)(learner.networks, config, jax.tree.map(jnp.float32, flat))
    mean = np.asarray(learner.networks.actor(flat.observation), float)
    z = (flat.sample - mean) / config.initial_std
    advantage = (flat.advantage - flat.advantage.mean()) / flat.advantage.std()
    score = advantage[:, None] * z / config.initial_std  # A d log pi / d mean
    np.testing.assert_allclose(gradient.actor.biases[0], -score.mean(0), rtol=1e-4)
    expected = -flat.observation.T @ score / len(score)
    np.testing.assert_allclose(gradient.actor.weights[0], expected, rtol=1e-3, atol=1e-5)
    width = (advantage[:, None] * (z**2 - 1)).mean(0)  # A d log pi / d log std
    np.testing.assert_allclose(gradient.log_std, -width, rtol=1e-3, atol=1e-5)
    assert not np.any(gradient.critic.weights[0])


def test_a_ratio_beyond_the_clip_pays_nothing_and_the_other_terms_count():
    learner, batch, _ = collected(Walk())
    far = batch._replace(log_prob=batch.log_prob - 1.0, advantage=jnp.abs(batch.advantage) + 1)
    clipped = jnp.exp(1.0) > 1 + SMALL.clip
    gradient = jax.grad(ppo.loss)(learner.networks, SMALL, far)
    above = (far.advantage - far.advantage.mean()) > 0
    assert clipped and 0 < above.mean() < 1
    only = jax.grad(ppo.loss)(
        learner.networks, SMALL, far._replace(log_prob=jnp.where(above, jnp.inf, far.log_prob))
    )
    np.testing.assert_allclose(gradient.log_std, only.log_std, rtol=1e-5)
    config = PPOConfig(entropy_coefficient=0.1, value_coefficient=0.0)
    rich, poor = (
        ppo.loss(learner.networks, PPOConfig(entropy_coefficient=e, value_coefficient=v), batch)
        for e, v in ((config.entropy_coefficient, 0.5), (0.0, 0.0))
    )
    error = jnp.mean((learner.networks.value(batch.observation) - batch.target) ** 2)
    np.testing.assert_allclose(rich - poor, 0.5 * error - 0.1 * np.log(0.5), rtol=1e-4)


# --- episodes ---


def test_an_early_end_stops_the_episode_and_its_leftover_steps_teach_nothing():
    env = Walk(horizon=6, goal=3.0)
    learner, batch, scores = collected(env, PPOConfig(num_envs=32, initial_std=1.0))
    value = np.cumsum(np.clip(2 * batch.sample[..., 0], -2, 2), axis=0)
    over = np.abs(value) >= 3
    before = np.vstack([np.zeros(32, bool), np.maximum.accumulate(over, axis=0)[:-1]])
    assert 0 < before.mean() < 1
    np.testing.assert_array_equal(batch.weight, ~before)
    length = (~before).sum(axis=0)
    np.testing.assert_allclose(scores, value[length - 1, np.arange(32)], rtol=1e-5)
    other = jax.tree.map(
        lambda x: jnp.where(before.reshape(6, 32, *(1,) * (x.ndim - 2)), 7.0, x), batch
    )._replace(weight=batch.weight)
    a, b = (ppo.loss(learner.networks, PPOConfig(), data) for data in (batch, other))
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_an_episode_in_closed_loop_is_that_of_stepping():
    env = Walk(horizon=5, goal=3.0)
    episode = play(env, lambda observation: 0.5 + observation[:1], KEY)
    state, timestep = env.reset(KEY)
    actions = []
    while not timestep.done:
        actions.append(0.5 + timestep.observation[:1])
        state, timestep = env.step(state, actions[-1])
    assert 1 < len(actions) < 5
    np.testing.assert_allclose(episode.actions[: len(actions)], actions, rtol=1e-6)
    np.testing.assert_array_equal(episode.actions[len(actions) :], 0)
    np.testing.assert_allclose(episode.score, state.value, rtol=1e-6)


# --- training ---


def test_it_learns_and_reports():
    config = PPOConfig(num_updates=30, num_envs=32, learning_rate=1e-2, width=16)
    seen = []
    result = train(Walk(), config, (0, 5), progress=lambda *report: seen.append(report))
    assert result.curves.shape == (2, 30) and result.seeds == (0, 5)
    assert np.all(np.abs(result.curves[:, 0]) < 1.5) and np.all(result.curves[:, -1] > 5)
    assert np.all(result.scores > 5.9)  # sum u <= 6
    assert np.array_equal(
        result.best.network.biases[0], result.policies[np.argmax(result.scores)].network.biases[0]
    )
    done, scores = zip(*seen, strict=True)
    assert done[-1] == 30 and list(done) == sorted(set(done))
    np.testing.assert_allclose(scores, result.curves.mean(axis=0)[np.array(done) - 1], rtol=1e-6)


@pytest.mark.slow
def test_the_qubit_is_learnt_to_three_nines_by_every_one_of_eight_seeds():
    result = train(qenvs.make("qubit/StateTransfer-v0"), seeds=range(8))
    assert result.scores.mean() >= 0.999 and result.scores.min() >= 0.998


def test_seeds_differ_and_do_not_depend_on_their_company_beyond_rounding():
    config = PPOConfig(**{**vars(SMALL), "num_updates": 3})
    alone, together = train(Walk(), config, [2]), train(Walk(), config, [1, 2])
    np.testing.assert_allclose(together.curves[1], alone.curves[0], rtol=1e-3)
    assert not np.any(together.curves[0] == together.curves[1])


@pytest.mark.parametrize("x64", [False, True])
def test_RN_6_the_networks_are_float32_and_the_draws_the_same_in_either_precision(x64):
    reference = collected(qenvs.make("qubit/StateTransfer-v0"))[1]
    with jax.enable_x64(x64) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64(x64):
        env = qenvs.make("qubit/StateTransfer-v0")
        _, batch, _ = collected(env)
        learner, score = jax.jit(partial(ppo.update, env, SMALL))(ppo.initialise(env, SMALL, KEY))
    np.testing.assert_allclose(batch.sample, reference.sample, atol=1e-5)
    assert {leaf.dtype for leaf in jax.tree.leaves((batch, learner.networks))} == {
        np.dtype("float32")
    }
    assert np.isfinite(score)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_updates": 0}, "`num_updates` must be >= 1"),
        ({"num_envs": 6}, "`num_minibatches` must divide `num_envs`, got 4 and 6"),
        ({"discount": 1.5}, r"`discount` must lie in \[0, 1\]"),
        ({"learning_rate": 0.0}, "`learning_rate` must be > 0"),
    ],
)
def test_a_bad_configuration_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        PPOConfig(**change)


@pytest.mark.parametrize("seeds", [(), (-1,), (2**32,)])
def test_bad_seeds_are_refused(seeds):
    with pytest.raises(ValueError, match="`seeds` must be"):
        train(Walk(), SMALL, seeds)


# --- checkpoints ---


def same_bits(one, other):
    np.testing.assert_array_equal(one.curves, other.curves)
    np.testing.assert_array_equal(one.scores, other.scores)
    for a, b in zip(jax.tree.leaves(one.policies), jax.tree.leaves(other.policies), strict=True):
        np.testing.assert_array_equal(a, b)


def interrupt_after(updates):
    def progress(done, score):
        if done >= updates:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("chunk_seconds", [1e-9, 1e-2])
def test_a_run_that_was_interrupted_ends_with_the_same_bits(tmp_path, monkeypatch, chunk_seconds):
    monkeypatch.setattr(training, "CHUNK_SECONDS", chunk_seconds)
    file = tmp_path / "run.ckpt"
    unbroken = train(Walk(), SMALL, range(2))
    for updates in (1, 5):
        with pytest.raises(KeyboardInterrupt):
            train(
                Walk(),
                SMALL,
                range(2),
                checkpoint=file,
                resume=True,
                progress=interrupt_after(updates),
            )
    resumed = []
    again = partial(train, Walk(), SMALL, range(2), checkpoint=file, resume=True)
    same_bits(unbroken, again(progress=lambda done, _: resumed.append(done)))
    assert resumed[0] > 5
    same_bits(unbroken, again(progress=lambda *_: pytest.fail("the run is finished")))


def test_without_resume_a_run_starts_anew(tmp_path):
    file = tmp_path / "run.ckpt"
    first = train(Walk(), SMALL, checkpoint=file)
    seen = []
    same_bits(first, train(Walk(), SMALL, checkpoint=file, progress=lambda n, _: seen.append(n)))
    assert seen[0] == 1
    same_bits(first, train(Walk(), SMALL, checkpoint=tmp_path / "none", resume=True))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    file = tmp_path_factory.mktemp("runs") / "run.ckpt"
    train(Walk(), SMALL, checkpoint=file)
    return file


@pytest.mark.parametrize(
    ("env", "change", "seeds", "message"),
    [
        (Walk(), {"clip": 0.3}, (0,), "has clip 0.2 there and 0.3 here"),
        (Walk(), {}, (0, 1), r"has seeds \[0\] there and \[0, 1\] here"),
        (Walk(action_bound=3.0), {}, (0,), "has environment "),
        (Walk(goal=9.0), {}, (0,), "has environment "),
        (Endless(Walk()), {}, (0,), "has environment "),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(checkpoint, env, change, seeds, message):
    config = PPOConfig(**{**vars(SMALL), **change})
    with pytest.raises(ValueError, match=message):
        train(env, config, seeds, checkpoint=checkpoint, resume=True)


def test_a_checkpoint_of_another_version_is_refused(checkpoint, monkeypatch):
    monkeypatch.setattr(training, "__version__", "9.9")
    with pytest.raises(ValueError, match=r"has qenvs '.*' there and '9\.9' here"):
        train(Walk(), SMALL, checkpoint=checkpoint, resume=True)


def test_any_other_file_is_no_checkpoint(tmp_path):
    file = tmp_path / "run.ckpt"
    file.write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match="must be a checkpoint file of qenvs"):
        train(Walk(), SMALL, checkpoint=file, resume=True)


def test_a_writer_that_dies_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "file"
    storage.write(file, {"kind": "test"}, np.arange(3))
    old = file.read_bytes()
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        storage.write(file, {"kind": "test"}, np.arange(3000))
    assert file.read_bytes() == old
    np.testing.assert_array_equal(storage.read_tree(file, np.zeros(3, int)), np.arange(3))


CHILD = """
import sys, numpy as np, qenvs
from qenvs.controllers import PPOConfig, train, training
training.CHUNK_SECONDS = 0.02
result = train(
    qenvs.make("qubit/StateTransfer-v0"),
    PPOConfig(num_updates=300, num_envs=8, width=16),
    seeds=range(2),
    checkpoint=sys.argv[1],
    resume=True,
    progress=lambda done, score: print(done, flush=True),
)
np.savez(sys.argv[2], curves=result.curves, scores=result.scores, *map(
    np.ravel, (result.policies[1].network.weights)))
"""


def child(checkpoint, result):
    environ = os.environ | {"PYTHONPATH": str(Path(qenvs.__file__).parents[1])}
    command = [sys.executable, "-c", CHILD, str(checkpoint), str(result)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ)


@pytest.mark.slow
def test_a_run_killed_by_SIGKILL_twice_ends_with_the_same_bits(tmp_path):
    unbroken = child(tmp_path / "a.ckpt", tmp_path / "a.npz")
    assert unbroken.wait(timeout=600) == 0 and unbroken.stdout
    reached = []
    for _ in range(2):
        running = child(tmp_path / "b.ckpt", tmp_path / "b.npz")
        assert running.stdout
        running.stdout.readline()
        time.sleep(random.uniform(0.0, 0.5))
        os.kill(running.pid, signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
        reached.append(int(running.stdout.read().split()[-1]))
    assert 0 < reached[0] < reached[1] < 300
    assert child(tmp_path / "b.ckpt", tmp_path / "b.npz").wait(timeout=600) == 0
    one, other = np.load(tmp_path / "a.npz"), np.load(tmp_path / "b.npz")
    assert one.files == other.files
    for name in one.files:
        np.testing.assert_array_equal(one[name], other[name])


# --- policies ---


def test_a_policy_acts_within_the_bound_in_the_units_of_the_environment():
    network = random_mlp(KEY, (4, 16, 2), last_scale=10.0)
    policy = Policy(network, jnp.array([0.5, 3.0]))
    observations = jax.random.normal(KEY, (100, 4))
    actions = jax.vmap(policy)(observations)
    raw = np.asarray(network(observations))
    assert (np.abs(raw) > 1).any() and (np.abs(raw) < 1).any()
    np.testing.assert_allclose(actions, np.clip(raw, -1, 1) * [0.5, 3.0], rtol=1e-6)
    np.testing.assert_allclose(policy(observations[0]), actions[0], rtol=1e-5)


def test_a_saved_policy_comes_back_with_its_task(tmp_path):
    task, kwargs = "qubit/StateTransfer-v0", {"detuning": 0.1}
    config = PPOConfig(**{**vars(SMALL), "num_updates": 1})
    env = qenvs.make(task, **kwargs)
    policy = train(env, config).best
    save_policy(tmp_path / "policy", policy, task=task, task_kwargs=kwargs)
    loaded, saved = load_policy(tmp_path / "policy")
    assert (saved["task"], saved["task_kwargs"], saved["sizes"]) == (task, kwargs, [5, 16, 1])
    for a, b in zip(jax.tree.leaves(policy), jax.tree.leaves(loaded), strict=True):
        np.testing.assert_array_equal(a, b)
    assert play(env, loaded, KEY).score == play(env, policy, KEY).score
    (tmp_path / "other").write_text(json.dumps({"kind": "pulse"}))
    with pytest.raises(ValueError, match="must be a policy file"):
        load_policy(tmp_path / "other")


@pytest.mark.parametrize("kept", [0.2, 0.9, 0.999])
def test_a_damaged_file_is_named(tmp_path, kept):
    path, tree = tmp_path / "run.eqx", {"a": jnp.arange(1000.0), "b": jnp.ones(3)}
    storage.write(path, {"kind": "checkpoint"}, tree)
    path.write_bytes(path.read_bytes()[: int(kept * path.stat().st_size)])
    with pytest.raises(ValueError, match=r"run\.eqx is damaged .* remove it"):
        storage.read_tree(path, tree)
