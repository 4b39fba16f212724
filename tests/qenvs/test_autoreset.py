"""What happens at the end of an episode in a batch: the three modes, masks, time limits."""

import numpy as np
import pytest
from gymnasium import vector
from gymnasium.error import ResetNeeded
from gymnasium.wrappers import vector as wrappers

from episodes import calls, ends, leaves, opening
from qenvs.wrappers.vector import GymnasiumVectorEnv
from systems import Walk

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


@pytest.mark.claims("G-AR-1", "G-AR-8", "G-Q18")
def test_VE_11_the_mode_is_declared_per_instance(functional, walk, same_step, disabled):
    assert "autoreset_mode" not in GymnasiumVectorEnv.metadata
    if not HAS_ENUM:
        assert all("autoreset_mode" not in envs.metadata for envs in (walk, same_step, disabled))
        return
    modes = vector.AutoresetMode
    declared = [envs.metadata["autoreset_mode"] for envs in (walk, same_step, disabled)]
    assert declared == [modes.NEXT_STEP, modes.SAME_STEP, modes.DISABLED]
    given = GymnasiumVectorEnv(functional, 2, autoreset_mode=modes.SAME_STEP)
    assert given.metadata["autoreset_mode"] is modes.SAME_STEP


def test_modes_are_names_or_values(functional):
    for name in ("SAME_STEP", "same_step", "SameStep", "samestep"):
        envs = GymnasiumVectorEnv(functional, 1, autoreset_mode=name)
        envs.reset()
        assert "final_obs" in [envs.step(np.ones((1, 1))) for _ in range(3)][-1][4]
    with pytest.raises(ValueError, match="must be NEXT_STEP, SAME_STEP or DISABLED, got 'never'"):
        GymnasiumVectorEnv(functional, 1, autoreset_mode="never")


@pytest.mark.claims("G-AR-2", "G-AR-4", "G-AR-5", "G-AR-6", "G-RT-3", "G-Q17", "G-CR-5")
def test_VE_9_VE_4_next_step_episodes(functional, walk):
    returned = calls(walk, 8, seed=2, actions=ONES)
    steps = returned[1:]
    assert ends(returned) == [2, 6]
    observation, reward, terminated, _, infos = steps[2]
    np.testing.assert_array_equal(observation[:, 2:], [[3, 3], [3, 3]])  # value, step index
    assert terminated.all() and (reward == 1).all()
    assert (infos["value"] == 3).all() and (infos["diagnostics"]["deep"]["step"] == 3).all()
    observation, reward, terminated, truncated, infos = steps[3]
    wanted = [opening(functional, 2, i) for i in (2, 3)]
    np.testing.assert_array_equal(observation, wanted)
    assert (reward == 0).all() and not terminated.any() and not truncated.any()
    assert (infos["value"] == 0).all() and (infos["start"] == observation[:, 0]).all()
    assert all("final_obs" not in step[4] and "final_info" not in step[4] for step in steps)


@pytest.mark.claims("G-AR-3")
def test_the_opening_call_ignores_its_action(walk):
    after = []
    for opener in (ONES, -2 * ONES):
        calls(walk, 3, seed=4, actions=ONES)
        after.append([walk.step(opener), walk.step(0.5 * ONES)])
    for first, second in zip(*map(leaves, after), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.claims("G-AR-3", "G-AR-6")
def test_sub_environments_reset_alone():
    """Walkers that reach their goal at different times, against single ones."""
    env = Walk(horizon=6, goal=2.0)
    envs = GymnasiumVectorEnv(env, 3)
    speeds = np.array([[1.0], [0.5], [0.1]], np.float32)
    finished = np.array([step[2] for step in calls(envs, 14, actions=speeds)[1:]])
    assert [np.flatnonzero(column).tolist() for column in finished.T] == [
        [1, 4, 7, 10, 13],
        [3, 8, 13],
        [5, 12],
    ]


@pytest.mark.claims("G-KEY-3", "G-Q15")
def test_RN_12_one_seed_fixes_every_later_episode():
    env = Walk(horizon=6, goal=2.0)
    envs = GymnasiumVectorEnv(env, 3)
    speeds = np.array([[1.0], [0.5], [0.1]], np.float32)
    first, second = (calls(envs, 21, seed=8, actions=speeds) for _ in range(2))
    for a, b in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    for b, length in enumerate((2, 4, 6)):
        for j in range(3):
            row = first[j * (length + 1)][0][b]
            np.testing.assert_array_equal(row, opening(env, 8, 3 * j + b))


@pytest.mark.claims("G-AR-7", "G-Q15")
def test_reset_discards_a_pending_autoreset(functional, walk):
    calls(walk, 3, seed=6, actions=ONES)
    observation, _ = walk.reset()
    np.testing.assert_array_equal(observation, [opening(functional, 6, i) for i in (2, 3)])
    *_, infos = walk.step(0.5 * ONES)
    assert (infos["applied"] == 0.5).all() and (infos["diagnostics"]["deep"]["step"] == 1).all()


@pytest.mark.claims("G-TP-5")
@pytest.mark.parametrize("mode", ["walk", "same_step"])
def test_reset_is_evaluated_only_where_an_episode_begins(mode, request, monkeypatch):
    envs = request.getfixturevalue(mode)
    evaluated, reset = [], envs._compiled.reset
    monkeypatch.setattr(
        envs._compiled, "reset", lambda *args: (evaluated.append(len(seen)), reset(*args))[1]
    )
    seen = []
    envs.reset(seed=0)
    for _ in range(9):
        seen.append(envs.step(ONES))
    assert evaluated == ([0, 3, 7] if mode == "walk" else [0, 2, 5, 8])


def test_VE_15_real_steps_per_call(walk):
    for count, real, finished in [(8, 6, 2), (15, 12, 4), (16, 12, 4)]:
        returned = calls(walk, count, actions=ONES)
        assert sum(step[1][0] for step in returned[1:]) == real == count - count // 4
        assert len(ends(returned)) == finished


def test_VE_3_real_rewards_by_mode():
    env = Walk(horizon=4)
    for mode, real in [("NEXT_STEP", 20), ("SAME_STEP", 24)]:
        envs = GymnasiumVectorEnv(env, 2, autoreset_mode=mode)
        assert sum(step[1].sum() for step in calls(envs, 12, actions=ONES)[1:]) == real


@pytest.mark.claims("G-AR-10")
def test_VE_1_record_episode_statistics(functional):
    envs = wrappers.RecordEpisodeStatistics(GymnasiumVectorEnv(functional, 2))
    envs.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-2, 2, (15, 2, 1)).astype(np.float32)
    seen = []
    for k, action in enumerate(actions):
        _, _, terminated, _, infos = envs.step(action)
        assert ("episode" in infos) == terminated.any()
        if terminated.any():
            seen.append(k)
            np.testing.assert_array_equal(infos["episode"]["l"], 3)
            total = actions[k - 2 : k + 1].sum(axis=0)[:, 0]
            np.testing.assert_allclose(infos["episode"]["r"], total, atol=1e-6)
    assert seen == [2, 6, 10, 14]


@pytest.mark.skipif(not HAS_ENUM, reason="Gymnasium 1.0 knows NEXT_STEP only")
def test_record_episode_statistics_in_the_same_step(functional):
    envs = GymnasiumVectorEnv(functional, 2, autoreset_mode="SAME_STEP")
    recorded = wrappers.RecordEpisodeStatistics(envs)
    recorded.reset(seed=0)
    for k in range(9):
        *_, infos = recorded.step(ONES)
        if k % 3 == 2:
            assert (infos["episode"]["l"] == 3).all() and (infos["episode"]["r"] == 3).all()


@pytest.mark.claims("G-AR-11")
def test_VE_4_same_step_mode(functional, same_step):
    returned = calls(same_step, 6, seed=2, actions=ONES)
    assert ends(returned) == [2, 5]
    for k, (observation, reward, terminated, truncated, infos) in enumerate(returned[1:]):
        assert (reward == 1).all() and not truncated.any()
        if k % 3 < 2:
            assert "final_obs" not in infos and not terminated.any()
            continue
        wanted = [opening(functional, 2, i) for i in ((2, 3) if k == 2 else (4, 5))]
        np.testing.assert_array_equal(observation, wanted)
        assert terminated.all() and (infos["value"] == 0).all() and infos["_value"].all()
        np.testing.assert_array_equal(infos["final_obs"][:, 2:], [[3, 3], [3, 3]])
        final = infos["final_info"]
        assert (final["value"] == 3).all() and final["_value"].all()
        assert (final["diagnostics"]["deep"]["step"] == 3).all()
        assert infos["_final_obs"].all() and infos["_final_info"].all()


@pytest.mark.claims("G-AR-11")
def test_VE_4_same_step_masks_where_only_some_end():
    env = Walk(horizon=6, goal=2.0)
    envs = GymnasiumVectorEnv(env, 2, autoreset_mode="SAME_STEP")
    speeds = np.array([[1.0], [0.5]], np.float32)
    observation, _, terminated, _, infos = calls(envs, 2, seed=1, actions=speeds)[-1]
    np.testing.assert_array_equal(terminated, [True, False])
    np.testing.assert_array_equal(infos["_final_obs"], [True, False])
    np.testing.assert_array_equal(infos["final_info"]["_value"], [True, False])
    np.testing.assert_array_equal(infos["value"], [0, 1])
    assert infos["final_info"]["value"][0] == 2 and infos["_value"].all()
    np.testing.assert_array_equal(observation[0], opening(env, 1, 2))
    np.testing.assert_array_equal(observation[1], [*opening(env, 1, 1)[:2], 1, 2])
    np.testing.assert_array_equal(infos["final_obs"][0], [*opening(env, 1, 0)[:2], 2, 2])


def test_disabled_mode_resets_where_the_mask_says(functional, disabled):
    calls(disabled, 3, seed=3, actions=ONES)
    with pytest.raises(ResetNeeded, match=r"\[0, 1\] have ended"):
        disabled.step(ONES)
    mask = np.array([False, True])
    observation, infos = disabled.reset(options={"reset_mask": mask})
    np.testing.assert_array_equal(observation[0, 2:], [3, 3])
    np.testing.assert_array_equal(observation[1], opening(functional, 3, 3))
    np.testing.assert_array_equal(infos["_value"], mask)
    np.testing.assert_array_equal(infos["value"], [3, 0])
    np.testing.assert_array_equal(infos["diagnostics"]["deep"]["_step"], mask)
    with pytest.raises(ResetNeeded, match=r"\[0\] have ended"):
        disabled.step(ONES)
    observation, _ = disabled.reset(options={"reset_mask": ~mask})
    np.testing.assert_array_equal(observation, [opening(functional, 3, i) for i in (2, 3)])
    *_, infos = disabled.step(ONES)
    assert (infos["diagnostics"]["deep"]["step"] == 1).all()


@pytest.mark.skipif(not HAS_ENUM, reason="Gymnasium 1.0 knows NEXT_STEP only")
def test_disabled_mode_under_record_episode_statistics(functional):
    envs = GymnasiumVectorEnv(functional, 2, autoreset_mode="DISABLED")
    recorded = wrappers.RecordEpisodeStatistics(envs)
    recorded.reset(seed=0)
    for _ in range(2):
        for _ in range(3):
            _, _, terminated, _, infos = recorded.step(ONES)
        assert (infos["episode"]["l"] == 3).all() and (infos["episode"]["r"] == 3).all()
        recorded.reset(options={"reset_mask": terminated})


def test_a_reset_mask_works_in_every_mode_and_mid_episode(functional, walk):
    calls(walk, 1, seed=9, actions=ONES)
    observation, _ = walk.reset(options={"reset_mask": np.array([True, False])})
    np.testing.assert_array_equal(observation[0], opening(functional, 9, 2))
    np.testing.assert_array_equal(observation[1, 2:], [1, 1])
    returned = [walk.step(ONES) for _ in range(4)]
    assert [step[2].tolist() for step in returned] == [
        [False, False],
        [False, True],
        [True, False],
        [False, False],
    ]


@pytest.mark.parametrize(
    ("mask", "seed", "match"),
    [
        (np.array([1, 0]), None, "must be bool of shape"),
        (np.array([True]), None, "must be bool of shape"),
        (np.array([False, False]), None, "at least one True"),
        (np.array([True, False]), 3, "seed"),
    ],
)
def test_reset_masks_are_checked(walk, mask, seed, match):
    walk.reset(seed=0)
    with pytest.raises(ValueError, match=match):
        walk.reset(seed=seed, options={"reset_mask": mask})


def test_TB_5_max_episode_steps_truncates_there():
    never = Walk(horizon=10**9)
    for mode, expected in [("NEXT_STEP", [3, 8, 13]), ("SAME_STEP", [3, 7, 11])]:
        envs = GymnasiumVectorEnv(never, 2, autoreset_mode=mode, max_episode_steps=4)
        recorded = wrappers.RecordEpisodeStatistics(envs)
        layers = recorded if HAS_ENUM or mode == "NEXT_STEP" else envs
        returned = calls(layers, 14, actions=ONES)
        assert not any(step[2].any() for step in returned[1:])
        assert [k for k, step in enumerate(returned[1:]) if step[3].all()] == expected
        assert ends(returned) == expected
        if layers is recorded:
            assert (returned[4][4]["episode"]["l"] == 4).all()
    with pytest.raises(ValueError, match="`max_episode_steps` must be >= 1"):
        GymnasiumVectorEnv(never, 2, max_episode_steps=0)


@pytest.mark.claims("G-Q13")
@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP", "DISABLED"])
@pytest.mark.parametrize("staggered", [False, True])
def test_a_refused_step_changes_nothing(functional, mode, staggered):
    def played(envs, refused):
        envs.reset(seed=3)
        if staggered:
            envs.step(ONES)
            envs.reset(options={"reset_mask": np.array([True, False])})
        seen = []
        for _ in range(9):
            if mode == "DISABLED" and envs._num_ended:
                seen.append(envs.reset(options={"reset_mask": envs._ended}))
            if refused:
                with pytest.raises(ValueError, match="actions must be finite"):
                    envs.step([[0.5], [np.inf]])
            seen.append(envs.step(ONES))
        return list(leaves(seen))

    limit = 2 if staggered else None
    envs = GymnasiumVectorEnv(functional, 2, autoreset_mode=mode, max_episode_steps=limit)
    for array, expected in zip(played(envs, True), played(envs, False), strict=True):
        np.testing.assert_array_equal(array, expected)
