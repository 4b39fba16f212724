"""The Gymnasium adapter of a batch of environments: spaces, arrays, infos, keys."""

import warnings

import gymnasium
import jax
import numpy as np
import pytest
import scipy.stats
from gymnasium import vector
from gymnasium.error import ResetNeeded
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import vector as wrappers

import qenvs
from episodes import calls, leaves, opening, play
from qenvs.wrappers import GymnasiumEnv
from qenvs.wrappers._compiled import CompiledEnv
from qenvs.wrappers.vector import GymnasiumVectorEnv
from systems import Tallied, Walk

TASK = "qubit/StateTransfer-v0"
HAS_ENUM = hasattr(vector, "AutoresetMode")
ONES = np.ones((2, 1), np.float32)


@pytest.fixture(scope="module")
def functional():
    return Walk()


@pytest.fixture(scope="module")
def walk(functional):
    """Two walkers, three steps an episode; tests reset it with a seed."""
    return GymnasiumVectorEnv(functional, 2)


@pytest.fixture(scope="module")
def same_step(functional):
    return GymnasiumVectorEnv(functional, 2, autoreset_mode="SAME_STEP")


@pytest.fixture(scope="module")
def disabled(functional):
    return GymnasiumVectorEnv(functional, 2, autoreset_mode="DISABLED")


@pytest.mark.claims("G-VE-1", "G-IF-7", "W-VE-1", "W-Q11")
def test_class_and_parameters(functional, walk):
    assert issubclass(GymnasiumVectorEnv, vector.VectorEnv)
    assert qenvs.wrappers.GymnasiumVectorEnv is GymnasiumVectorEnv
    assert walk.num_envs == 2 and not walk.normalize_actions
    with pytest.raises(TypeError, match="positional"):
        GymnasiumVectorEnv(functional, 2, 0)
    with pytest.raises(TypeError):
        GymnasiumVectorEnv(functional)


@pytest.mark.claims("W-Q10")
def test_number_of_environments_is_checked(functional):
    for number in (0, -1):
        with pytest.raises(ValueError, match="`num_envs` must be >= 1"):
            GymnasiumVectorEnv(functional, number)
    for number in (1.5, True, "2"):
        with pytest.raises(TypeError, match="`num_envs` must be an integer"):
            GymnasiumVectorEnv(functional, number)


@pytest.mark.claims("G-VE-2", "G-VE-3", "G-NA-8", "G-Q6")
@pytest.mark.parametrize("normalize", [False, True])
def test_spaces(normalize):
    env = Walk(action_dim=2, action_bound=np.array([0.4, 2.0]))
    envs = GymnasiumVectorEnv(env, 3, normalize_actions=normalize)
    single = GymnasiumEnv(env, normalize_actions=normalize)
    assert envs.observation_space.shape == (3, 4) and envs.action_space.shape == (3, 2)
    assert envs.single_observation_space == single.observation_space
    assert envs.single_action_space == single.action_space
    assert envs.observation_space == batch_space(single.observation_space, 3)
    assert envs.action_space == batch_space(single.action_space, 3)


@pytest.mark.claims("G-VE-4", "G-VE-5", "G-VE-6", "G-VE-7", "G-VE-14", "G-RT-4")
def test_shapes_and_types(walk):
    returned = calls(walk, 5)
    observation, infos = returned[0]
    assert observation.shape == (2, 4) and observation in walk.observation_space
    for observation, reward, terminated, truncated, infos in returned[1:]:
        assert observation in walk.observation_space
        assert reward.shape == terminated.shape == truncated.shape == infos["value"].shape == (2,)
        dtypes = [array.dtype for array in (observation, reward, terminated, truncated)]
        assert dtypes == [np.float32, np.float32, bool, bool]
        assert infos["applied"].shape == (2, 1)
        assert not truncated.any()
    assert all(type(array) is np.ndarray for array in leaves(returned))


@pytest.mark.claims("G-VE-8", "G-VE-9")
@pytest.mark.parametrize("mode", ["walk", "same_step", "disabled"])
def test_PF_3_arrays_are_writable_owned_and_contiguous(mode, request):
    envs = request.getfixturevalue(mode)
    for array in leaves(calls(envs, 3)):
        assert array.flags.writeable and array.flags.owndata and array.flags.c_contiguous


@pytest.mark.claims("G-VE-8", "G-IF-10")
def test_PF_3_torch_takes_the_arrays_without_a_warning(walk):
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for array in leaves(calls(walk, 4)):
            tensor = torch.from_numpy(array)
            if array.dtype == bool:
                assert tensor.dtype == torch.bool


@pytest.mark.claims("G-VE-10", "G-VE-9")
@pytest.mark.parametrize("mode", ["walk", "same_step"])
def test_VE_6_kept_references_never_change_and_writing_disturbs_nothing(mode, request):
    envs = request.getfixturevalue(mode)
    kept = calls(envs, 9, seed=1)
    saved = [array.copy() for array in leaves(kept)]
    shape = (9, 2, 1)
    actions = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
    disturbed = [envs.reset(seed=1)]
    for k in range(10):
        mine = [array.copy() for array in leaves(disturbed[-1])]
        for array, expected in zip(mine, leaves(kept[k]), strict=True):
            np.testing.assert_array_equal(array, expected)
        for array in leaves(disturbed[-1]):
            array[...] = 1
        if k < 9:
            disturbed.append(envs.step(actions[k]))
    owners = {array.__array_interface__["data"] for array in leaves(kept)}
    assert len(owners) == len(saved), "two arrays share their memory"
    for array, copy in zip(leaves(kept), saved, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.claims("G-VE-12", "G-VE-13", "G-Q13")
def test_VE_13_actions_of_another_shape_are_refused(walk):
    walk.reset(seed=0)
    for shape in [(2,), (), (1, 1), (2, 2), (1, 2), (2, 1, 1), (3, 1)]:
        with pytest.raises(ValueError, match=r"^actions must have shape \(2, 1\), got \("):
            walk.step(np.zeros(shape))
    with pytest.raises(ValueError, match=r"^actions must be finite"):
        walk.step(np.array([[0.0], [np.nan]]))
    square = GymnasiumVectorEnv(Walk(action_dim=2), 2)
    square.reset()
    with pytest.raises(ValueError, match=r"^actions must have shape \(2, 2\), got \(2,\)"):
        square.step(np.zeros(2))


@pytest.mark.claims("G-VE-15", "W-VE-4", "W-VE-5", "W-Q8")
def test_VE_8_every_info_has_a_mask_on_every_level(walk):
    def check(infos):
        names = {name for name in infos if not name.startswith("_")}
        assert set(infos) == names | {f"_{name}" for name in names}
        for name in names:
            mask = infos[f"_{name}"]
            assert mask.dtype == bool and mask.shape == (2,) and mask.all()
            if isinstance(infos[name], dict):
                check(infos[name])
            else:
                assert infos[name].shape[0] == 2

    for *_, infos in calls(walk, 5):
        check(infos)
        assert set(infos["diagnostics"]["deep"]) == {"step", "_step", "done", "_done"}


@pytest.mark.claims("G-IF-10")
def test_VE_8_infos_as_a_list_of_dicts(functional):
    envs = wrappers.DictInfoToList(GymnasiumVectorEnv(functional, 2))
    _, infos = envs.reset(seed=0)
    assert len(infos) == 2 and set(infos[0]) == {"value", "start", "applied", "diagnostics"}
    *_, infos = envs.step(np.array([[0.5], [1.0]], np.float32))
    assert [info["value"] for info in infos] == [0.5, 1.0]


@pytest.mark.claims("G-VE-16", "G-Q12", "G-TP-5")
def test_PF_1_one_trace_over_a_thousand_steps():
    env = Tallied(Walk(horizon=9))
    envs = GymnasiumVectorEnv(env, 2)
    constructed = env.tally.resets
    forms = [
        ONES,
        ONES.astype(float),
        [[1.0], [1.0]],
        jax.numpy.ones((2, 1)),
        np.ones((2, 1), int),
    ]
    envs.reset(seed=0)
    total = sum(envs.step(forms[k % 5])[1].sum() for k in range(1000))
    assert total == 2 * 900
    assert (env.tally.resets - constructed, env.tally.steps) == (1, 1)


def test_steps_are_computed_in_the_calling_thread():
    assert jax.config.values["jax_cpu_enable_async_dispatch"] is False


def test_PF_5_one_array_enters_and_leaves_the_device_per_step(functional):
    compiled = CompiledEnv(functional, 2)
    buffer = jax.eval_shape(compiled.reset, jax.random.PRNGKey(0), np.arange(2, dtype=np.int32))
    stepped = jax.eval_shape(compiled._jitted_step, buffer, ONES)
    assert isinstance(stepped, jax.ShapeDtypeStruct) and stepped == buffer


@pytest.mark.claims("G-KEY-2", "G-KEY-3", "G-KEY-4", "G-KEY-5", "W-VE-3", "G-AR-4", "G-IF-8")
def test_the_episodes_of_the_single_adapter_interleaved(functional, walk):
    pulses = np.random.default_rng(0).uniform(-2, 2, (6, 4, 1)).astype(np.float32)
    single = GymnasiumEnv(functional, seed=5)
    episodes = [play(single, pulse) for pulse in pulses]
    for i, episode in enumerate(episodes):
        np.testing.assert_array_equal(episode[0][0], opening(functional, 5, i))
    batches = pulses.reshape(3, 2, 4, 1).swapaxes(1, 2).reshape(12, 2, 1)  # episode, step, lane
    returned = [walk.reset(seed=5), *(walk.step(actions) for actions in batches[:-1])]
    for j in range(3):
        for k in range(4):
            step = returned[4 * j + k]
            for b in range(2):
                expected = episodes[2 * j + b][k]
                np.testing.assert_array_equal(step[0][b], expected[0])
                if k > 0:
                    assert (step[1][b], step[2][b], step[3][b]) == expected[1:4]


@pytest.mark.claims("W-VE-2", "G-Q14", "G-KEY-3")
def test_seeds_and_plain_resets(functional):
    envs = GymnasiumVectorEnv(functional, 2, seed=7)
    expect = [(None, 7, 0), (None, 7, 1), (3, 3, 0), (None, 3, 1), (3, 3, 0)]
    for seed, run, j in expect:
        observation, _ = envs.reset(seed=seed)
        wanted = [opening(functional, run, 2 * j + b) for b in range(2)]
        np.testing.assert_array_equal(observation, wanted)
        envs.step(ONES)


@pytest.mark.claims("W-Q9")
def test_RN_7_seeds_are_validated(walk):
    for seed in (-1, 2**32):
        with pytest.raises(ValueError, match="`seed` must be"):
            walk.reset(seed=seed)
        with pytest.raises(ValueError, match="`seed` must be"):
            GymnasiumVectorEnv(Walk(), 2, seed=seed)
    with pytest.raises(TypeError, match="share one run"):
        walk.reset(seed=[1, 2])
    with pytest.raises(TypeError, match="`seed` must be an integer"):
        walk.reset(seed=1.5)
    np.testing.assert_array_equal(walk.reset(seed=np.int64(7))[0], walk.reset(seed=7)[0])
    assert not np.array_equal(walk.reset(seed=2**32 - 1)[0], walk.reset(seed=0)[0])


@pytest.mark.claims("G-VE-11")
def test_wrappers_of_gymnasium_change_rewards_and_observations(functional):
    def build():
        return GymnasiumVectorEnv(functional, 2)

    clipped = wrappers.ClipReward(build(), -0.5, 0.5)
    doubled = wrappers.VectorizeTransformReward(
        build(), gymnasium.wrappers.TransformReward, func=lambda reward: 2 * reward
    )
    shifted = wrappers.VectorizeTransformObservation(
        build(),
        gymnasium.wrappers.TransformObservation,
        func=lambda observation: observation + 1,
        observation_space=functional.observation_space,
    )
    plain = build()
    for envs in (plain, clipped, doubled, shifted):
        first, _ = envs.reset(seed=0)
    for _ in range(5):
        observation, reward, *_ = plain.step(ONES)
        np.testing.assert_array_equal(clipped.step(ONES)[1], np.minimum(reward, 0.5))
        np.testing.assert_array_equal(doubled.step(ONES)[1], 2 * reward)
        np.testing.assert_array_equal(shifted.step(ONES)[0], observation + 1)
    np.testing.assert_array_equal(first, plain.reset(seed=0)[0] + 1)


@pytest.mark.claims("W-Q4", "G-LIM-4", "G-Q19", "G-Q20")
def test_SE_8_step_before_reset_and_close(functional):
    envs = GymnasiumVectorEnv(functional, 2)
    assert envs.closed is False
    with pytest.raises(ResetNeeded, match=r"call reset\(\)"):
        envs.step(ONES)
    with pytest.raises(ResetNeeded, match=r"call reset\(\)"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset()
    envs.close()
    assert envs.closed is True


@pytest.mark.claims("G-NA-4", "G-NA-5", "G-NA-6", "G-NA-7", "G-Q4")
def test_SE_6_normalised_actions_bit_for_bit():
    env = Walk(action_bound=0.7, horizon=20)
    scaled, unscaled = (
        GymnasiumVectorEnv(env, 2, normalize_actions=True),
        GymnasiumVectorEnv(env, 2),
    )
    scaled.reset(), unscaled.reset()
    for actions in np.random.default_rng(0).uniform(-1.5, 1.5, (8, 2, 1)).astype(np.float32):
        for a, b in zip(
            leaves(scaled.step(actions)),
            leaves(unscaled.step(actions * np.float32(0.7))),
            strict=True,
        ):
            np.testing.assert_array_equal(a, b)
    *_, infos = scaled.step(np.array([[5], [-5]]))
    np.testing.assert_array_equal(infos["applied"], np.float32([[0.7], [-0.7]]))


def test_SE_4_equal_seeds_agree_bit_for_bit(functional, walk, same_step):
    first = calls(walk, 6, seed=3)
    other = GymnasiumVectorEnv(functional, 2, seed=3)
    second = [other.reset()]
    for actions in np.random.default_rng(0).uniform(-1, 1, (6, 2, 1)).astype(np.float32):
        np.random.rand(2)  # noqa: NPY002 - the global generator must not matter
        walk.step(-actions)
        second.append(other.step(actions))
    for a, b in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_generator_of_gymnasium_is_seeded(walk):
    walk.reset(seed=5)
    assert walk.np_random.bit_generator.state == np.random.default_rng(5).bit_generator.state


def test_RN_1_episodes_of_one_sub_environment_draw_anew():
    envs = GymnasiumVectorEnv(Walk(horizon=1), 400, autoreset_mode="SAME_STEP")
    draws = [envs.reset(seed=0)[0][:, 0]]
    draws += [envs.step(np.zeros((400, 1)))[0][:, 0] for _ in range(4)]
    assert len({float(episode[0]) for episode in draws}) == 5
    samples = np.concatenate(draws)
    assert len(np.unique(samples)) > 1990  # float32 draws repeat now and then
    assert scipy.stats.kstest(samples, "uniform").pvalue > 1e-3


def test_RN_3_sub_environments_share_no_draw():
    envs = GymnasiumVectorEnv(Walk(), 4096)
    observation, _ = envs.reset(seed=0)
    start, speed = observation[:, 0], observation[:, 1]
    assert len(np.unique(start[:64])) == len(np.unique(speed[:64])) == 64
    assert abs(np.corrcoef(start, speed)[0, 1]) < 5 / 64
    assert abs(np.corrcoef(start[1:], start[:-1])[0, 1]) < 5 / 64


@pytest.mark.claims("G-CR-4", "G-CR-5", "G-CR-7", "G-CR-8", "G-CR-9")
def test_cleanrl_style_loop_three_episodes():
    def loop():
        num_envs = 8
        envs = GymnasiumVectorEnv(qenvs.make(TASK), num_envs, seed=0, normalize_actions=True)
        envs.action_space.seed(0)
        envs.reset(seed=0)
        running, total, finished = np.zeros(num_envs), 0.0, []
        for _ in range(3 * 21):
            _, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
            running += rewards
            total += rewards.sum()
            for i in np.flatnonzero(terminations | truncations):
                finished.append((running[i], infos["fidelity"][i]))
                running[i] = 0.0
        return total, np.array(finished)

    total, finished = loop()
    assert len(finished) == 24
    assert finished[:, 0].mean() == pytest.approx(0.068656, abs=1e-5)
    np.testing.assert_allclose(finished[:, 0], finished[:, 1], atol=1e-6)
    assert total == pytest.approx(finished[:, 0].sum(), abs=1e-5)
    np.testing.assert_array_equal(loop()[1], finished)
