"""The Gymnasium adapter of one environment."""

import warnings
from copy import deepcopy

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box
from gymnasium.utils.env_checker import check_env

import qenvs
from episodes import assert_same, leaves, play
from qenvs import keys
from qenvs.wrappers import GymnasiumEnv, GymnasiumVectorEnv
from systems import Tallied, Walk, rabi_fidelities

TASK = "qubit/StateTransfer-v0"
ACTIONS = np.random.default_rng(1).uniform(-1.2, 1.2, (20, 1)).astype(np.float32)


@pytest.fixture(scope="module")
def qubit():
    return qenvs.make(TASK)


@pytest.fixture(scope="module")
def scaled(qubit):
    return GymnasiumEnv(qubit, normalize_actions=True)


@pytest.fixture(scope="module")
def unscaled(qubit):
    return GymnasiumEnv(qubit)


@pytest.fixture(scope="module")
def walk():
    return GymnasiumEnv(Walk())


@pytest.mark.claims("W-GE-1", "W-GE-2", "G-IF-6", "W-Q1")
def test_class_and_parameters(qubit):
    assert issubclass(qenvs.wrappers.GymnasiumEnv, gymnasium.Env)
    first, second = GymnasiumEnv(qubit, 5, True), GymnasiumEnv(env=qubit, seed=5)
    assert first.normalize_actions and not second.normalize_actions
    with pytest.raises(TypeError):
        GymnasiumEnv()


@pytest.mark.claims("G-NA-3", "G-NA-8", "G-NA-9", "G-Q3", "G-Q5")
def test_spaces(scaled, unscaled):
    assert scaled.action_space == Box(-1, 1, (1,), np.float32)
    assert repr(scaled.action_space) == "Box(-1.0, 1.0, (1,), float32)"
    assert unscaled.action_space == Box(-2, 2, (1,), np.float32)
    assert scaled.observation_space == unscaled.observation_space
    assert np.isneginf(scaled.observation_space.low).all()
    assert np.isposinf(scaled.observation_space.high).all()


@pytest.mark.claims("W-GE-3", "W-Q3", "G-Q11")
def test_PF_3_what_is_returned_is_numpy_writable_and_owned(scaled, walk):
    for env, actions in ((scaled, ACTIONS), (walk, np.ones((3, 1)))):
        (first, opening), *steps = play(env, actions)
        for observation in (first, *(step[0] for step in steps)):
            assert observation in env.observation_space
        arrays = [first, *leaves(opening)]
        for observation, reward, terminated, truncated, info in steps:
            assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
            arrays += [observation, *leaves(info)]
        for array in arrays:
            assert type(array) is np.ndarray
            assert array.flags.writeable and array.flags.owndata and array.flags.c_contiguous


@pytest.mark.claims("G-VE-10")
def test_VE_6_kept_references_never_change_and_writing_disturbs_nothing(walk):
    actions = np.array([[0.5], [1.5], [-1.0]])
    calm = play(walk, actions, seed=3)
    kept = [leaves(returned) for returned in calm]
    copies = [[np.array(leaf) for leaf in group] for group in kept]
    walk.reset(seed=3)
    for action, expected in zip(actions, calm[1:], strict=True):
        returned = walk.step(action)
        assert_same(returned, expected)
        for leaf in leaves(returned):
            if isinstance(leaf, np.ndarray):
                leaf[...] = 1
    for group, saved in zip(kept, copies, strict=True):
        for leaf, copy in zip(group, saved, strict=True):
            np.testing.assert_array_equal(leaf, copy)


@pytest.mark.claims("G-RT-1", "G-RT-2", "G-RT-3", "G-RT-4", "G-RT-5", "G-NA-4", "G-NA-6", "G-CR-6")
def test_an_episode_in_closed_form(scaled):
    (first, opening), *steps = play(scaled, ACTIONS)
    exact = rabi_fidelities(2 * np.clip(ACTIONS, -1, 1))
    fidelities = [opening["fidelity"], *(step[4]["fidelity"] for step in steps)]
    np.testing.assert_allclose(fidelities, exact, atol=2e-6)
    np.testing.assert_allclose([step[1] for step in steps], np.diff(exact), atol=2e-6)
    assert [step[2] for step in steps] == [False] * 19 + [True]
    assert not any(step[3] for step in steps)
    fractions = [first[-1], *(step[0][-1] for step in steps)]
    np.testing.assert_allclose(fractions, np.arange(21) / 20, rtol=1.2e-7)


@pytest.mark.claims("G-NA-4", "G-NA-5", "G-Q4")
def test_normalised_actions_are_multiplied_bit_for_bit(scaled, unscaled):
    for normalised, given in zip(
        play(scaled, ACTIONS), play(unscaled, ACTIONS * np.float32(2)), strict=True
    ):
        assert_same(normalised, given)
    bound = np.float32(0.7)  # no power of two: the product is rounded, in float32
    odd = Walk(action_bound=0.7, horizon=20)
    pair = GymnasiumEnv(odd, normalize_actions=True), GymnasiumEnv(odd)
    for normalised, given in zip(
        play(pair[0], ACTIONS), play(pair[1], ACTIONS * bound), strict=True
    ):
        assert_same(normalised, given)


@pytest.mark.claims("G-NA-6", "G-NA-7", "G-Q6")
def test_SE_6_one_rule_for_actions_clip():
    env = GymnasiumEnv(Walk(action_bound=0.4, horizon=9), normalize_actions=True)
    env.reset()
    for given, applied in [(-1, -0.4), (0, 0), (0.5, 0.2), (1, 0.4), (5, 0.4), (-5, -0.4)]:
        info = env.step([given])[4]
        np.testing.assert_array_equal(info["applied"], np.float32([applied]))
    wide = GymnasiumEnv(Walk(action_bound=np.array([0.4, 2]), action_dim=2))
    np.testing.assert_array_equal(wide.action_space.high, np.float32([0.4, 2]))
    wide.reset()
    np.testing.assert_array_equal(wide.step([5, -5])[4]["applied"], np.float32([0.4, -2]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.claims("G-Q13")
def test_SE_6_actions_must_be_finite(walk, value):
    walk.reset()
    with pytest.raises(ValueError, match="action must be finite"):
        walk.step(np.array([value]))
    walk.step(np.array([1.0]))  # the episode goes on


@pytest.mark.parametrize("action", [0.5, [[0.5]], [0.5, 0.5], []])
@pytest.mark.claims("W-Q7")
def test_VE_13_actions_of_another_shape_are_refused(walk, action):
    walk.reset()
    with pytest.raises(ValueError, match=r"^action must have shape \(1,\), got \("):
        walk.step(action)


@pytest.mark.claims("W-GE-5", "W-GE-6", "W-GE-7", "W-GE-8", "G-KEY-1", "G-KEY-2", "G-Q14")
def test_episode_keys(walk):
    functional = Walk()

    def opening(seed, i):
        return functional.reset(keys.episode_key(jax.random.PRNGKey(seed), i))[1].observation

    fresh = GymnasiumEnv(functional, seed=11)
    for i in range(3):
        np.testing.assert_array_equal(fresh.reset()[0], opening(11, i))
    for _ in range(2):  # also for the same seed again
        np.testing.assert_array_equal(fresh.reset(seed=4)[0], opening(4, 0))
        fresh.step([1.0])
        np.testing.assert_array_equal(fresh.reset()[0], opening(4, 1))
    assert len({opening(s, i).tobytes() for s in (4, 11) for i in range(5)}) == 10


@pytest.mark.claims("W-GE-9", "G-KEY-6")
def test_deterministic_tasks_ignore_the_seed(unscaled):
    first = play(unscaled, ACTIONS, seed=0)
    for other in (play(unscaled, ACTIONS, seed=123), play(unscaled, ACTIONS)):
        for a, b in zip(first, other, strict=True):
            assert_same(a, b)


def test_RN_7_seeds_are_validated(walk):
    for seed in (-1, 2**32):
        with pytest.raises(ValueError, match="`seed` must be"):
            walk.reset(seed=seed)
        with pytest.raises(ValueError, match="`seed` must be"):
            GymnasiumEnv(Walk(), seed=seed)
    for seed in (1.5, True, [1, 2], "7"):
        with pytest.raises(TypeError, match="`seed` must be an integer"):
            walk.reset(seed=seed)
    np.testing.assert_array_equal(walk.reset(seed=np.int64(7))[0], walk.reset(seed=7)[0])
    assert not np.array_equal(walk.reset(seed=2**32 - 1)[0], walk.reset(seed=0)[0])


@pytest.mark.claims("W-Q6")
def test_the_generator_of_gymnasium_is_seeded_and_unused(walk):
    walk.reset(seed=5)
    state = walk.np_random.bit_generator.state
    assert state == np.random.default_rng(5).bit_generator.state
    play(walk, np.ones((3, 1)))
    assert walk.np_random.bit_generator.state == state


def test_SE_4_equal_seeds_and_actions_agree_bit_for_bit():
    functional = Walk(horizon=6)
    first, second, third = (GymnasiumEnv(functional, seed=s) for s in (2, 2, 9))
    actions = np.random.default_rng(0).normal(size=(6, 1))
    alone = play(first, actions)
    returned = [second.reset()]
    third.reset()
    for action in actions:
        np.random.rand(3)  # noqa: NPY002 - the global generator must not matter
        third.step(-action)
        returned.append(second.step(action))
    for a, b in zip(alone, returned, strict=True):
        assert_same(a, b)


@pytest.mark.claims("W-GE-10")
def test_nested_infos_stay_nested(walk):
    (_, opening), *steps = play(walk, np.ones((3, 1)))
    for k, info in enumerate([opening, *(step[4] for step in steps)]):
        deep = info["diagnostics"]["deep"]
        assert set(info["diagnostics"]) == {"speed", "deep"} and set(deep) == {"step", "done"}
        assert type(deep["step"]) is np.ndarray and deep["step"].dtype == np.int32
        assert deep["step"] == k and deep["done"].dtype == bool and deep["done"] == (k == 3)
        assert info["diagnostics"]["speed"].shape == () and info["applied"].shape == (1,)


@pytest.mark.claims("W-GE-4", "G-Q12")
def test_PF_1_one_trace_over_a_thousand_steps():
    functional = Tallied(Walk(horizon=10))
    env = GymnasiumEnv(functional)
    constructed = functional.tally.resets
    forms = [
        lambda: np.array([0.5]),
        lambda: np.array([0.5], np.float32),
        lambda: [0.5],
        lambda: (np.float64(0.5),),
        lambda: jax.numpy.array([0.5]),
        lambda: np.array([1]),
    ]
    rewards = set()
    for _ in range(100):
        env.reset()
        rewards |= {env.step(forms[k % 5]())[1] for k in range(10)}
    assert rewards == {0.5}
    assert (functional.tally.resets - constructed, functional.tally.steps) == (1, 1)


@pytest.mark.claims("W-Q4")
def test_SE_8_steps_outside_an_episode_are_refused():
    env = GymnasiumEnv(Walk())
    with pytest.raises(ResetNeeded, match=r"call reset\(\)"):
        env.step([1.0])
    play(env, np.ones((3, 1)))
    for _ in range(2):
        with pytest.raises(ResetNeeded, match="has ended"):
            env.step([1.0])
    env.reset()
    assert env.step([1.0])[1] == 1


@pytest.mark.claims("W-Q2")
def test_options_are_accepted_and_without_effect(walk):
    expected = walk.reset(seed=1)
    for options in (None, {}, {"anything": 1}):
        assert_same(walk.reset(seed=1, options=options), expected)


@pytest.mark.claims("G-LIM-4", "G-Q19", "G-Q20")
def test_close_marks_as_closed(qubit):
    env = GymnasiumEnv(Walk())
    assert env.closed is False
    env.reset()
    env.close()
    assert env.closed is True
    env.step([1.0])  # nothing was released


@pytest.mark.claims("G-IF-9", "G-NA-11", "G-NA-12")
@pytest.mark.parametrize("normalize", [False, True])
def test_check_env_of_gymnasium_warns_only_of_spaces(qubit, normalize):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(GymnasiumEnv(qubit, normalize_actions=normalize, render_mode="rgb_array"))
    messages = [str(w.message) for w in caught if "WARN: " in str(w.message)]
    observation = [m for m in messages if "observation space" in m and "infinity" in m]
    action = [m for m in messages if "symmetric and normalized" in m]
    spec = [m for m in messages if "spec" in m]  # it was not made by gymnasium.make
    assert observation and bool(action) != normalize
    assert sorted(messages) == sorted(observation + action + spec)


@pytest.mark.claims("G-LIM-3", "G-Q21")
def test_rendering_off_is_said_aloud(walk):
    walk.reset()
    with pytest.raises(ValueError, match='render_mode="rgb_array"'):
        walk.render()
    with pytest.raises(ValueError, match="`render_mode` must be one of None, 'rgb_array'"):
        GymnasiumEnv(Walk(), render_mode="human")
    with pytest.raises(ResetNeeded):
        GymnasiumEnv(Walk(), render_mode="rgb_array").render()


@pytest.mark.claims("G-LIM-3", "G-Q21")
def test_frames_show_the_episode_so_far():
    pytest.importorskip("matplotlib")
    env = GymnasiumEnv(qenvs.make(TASK, horizon=2), render_mode="rgb_array")
    frames = [env.reset() and env.render()]
    for _ in range(2):
        env.step([2.0])
        frames.append(env.render())
    shapes = {frame.shape for frame in frames}
    assert len(shapes) == 1 and all(frame.dtype == np.uint8 for frame in frames)
    assert not np.array_equal(frames[0], frames[1]) and not np.array_equal(frames[1], frames[2])
    np.testing.assert_array_equal(frames[2], env.render())


def test_record_video_writes_one_frame_per_state(tmp_path):
    pytest.importorskip("matplotlib")
    pytest.importorskip("moviepy")
    from gymnasium.wrappers import RecordVideo

    env = GymnasiumEnv(qenvs.make(TASK, horizon=2), render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders and missing specs
        recorder = RecordVideo(env, str(tmp_path), episode_trigger=lambda i: True)
    recorder.reset()
    recorder.step(np.zeros(1))
    recorder.step(np.zeros(1))
    assert len(recorder.recorded_frames) in (0, 3)  # 0: written already at the end
    recorder.close()
    (video,) = tmp_path.glob("*.mp4")
    assert video.stat().st_size > 0


@pytest.mark.parametrize("num_envs", [None, 2])
@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_actions_reach_the_original_and_its_deep_copy(num_envs, backend, monkeypatch):
    """Also where NumPy and JAX share no memory, as on another device."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    task = qenvs.make("qubit/StateTransfer-v0", horizon=3)
    env = GymnasiumEnv(task) if num_envs is None else GymnasiumVectorEnv(task, num_envs)
    env.reset(seed=0)
    twin = deepcopy(env)
    state, timestep = task.reset(jax.random.PRNGKey(0))
    for amplitude in (1.5, -0.5, 1.0):
        actions = np.full(env.action_space.shape, amplitude, np.float32)
        state, timestep = task.step(state, actions.reshape(-1)[:1])
        for played in (env, twin):
            assert np.ravel(played.step(actions)[1])[0] == pytest.approx(
                float(timestep.reward), abs=1e-6
            )


@pytest.mark.claims("G-Q2")
def test_every_interface_plays_the_same_episode_to_rounding():
    task = qenvs.make("qubit/StateTransfer-v0", horizon=5, detuning=0.3)
    pulse = np.random.default_rng(0).uniform(-2, 2, (5, 1)).astype(np.float32)
    key = jax.random.PRNGKey(0)
    single, vector = GymnasiumEnv(task), GymnasiumVectorEnv(task, 3)
    single.reset(seed=0)
    vector.reset(seed=0)
    seen = {
        "rollout": task.rollout(pulse, key)[1],
        "compiled rollout": jax.jit(task.rollout)(pulse, key)[1],
        "batch": jax.vmap(lambda k: task.rollout(pulse, k)[1])(jax.random.split(key, 3))[2],
        "GymnasiumEnv": [single.step(action)[1] for action in pulse],
        "GymnasiumVectorEnv": [vector.step(np.tile(a, (3, 1)))[1][1] for a in pulse],
    }
    for name, rewards in seen.items():
        np.testing.assert_allclose(rewards, seen["rollout"], atol=4e-7, err_msg=name)


@pytest.mark.parametrize("action", [np.array([1 + 1j]), [1 + 1j], np.array([None]), ["1"]])
def test_actions_must_be_real_numbers(walk, action):
    walk.reset()
    with pytest.raises(TypeError, match="action must be real numbers, got the dtype "):
        walk.step(action)
    for kind in (int, bool, np.float16, np.float64):
        walk.reset()
        np.testing.assert_array_equal(walk.step(np.ones(1, kind))[4]["applied"], [1.0])
