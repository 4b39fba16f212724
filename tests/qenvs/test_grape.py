"""The gradient pulse search against independent propagation, and its promises to the caller."""

import jax
import numpy as np
import pytest
from scipy.linalg import expm

import qenvs
from qenvs import keys
from qenvs.controllers import grape, optimize
from qenvs.envs import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.wrappers import Wrapper
from systems import Custom, Tallied, Tally, Walk

TASKS = [
    ("qubit/StateTransfer-v0", {}),
    ("qubit/StateTransfer-v0", {"gamma1": 0.05, "gamma_phi": 0.02, "detuning": 0.3}),
    ("transfer/LambdaSTIRAP-v0", {"horizon": 30, "gamma": 0.1}),
]


def enable_x64(on):
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(on)
    from jax.experimental import enable_x64

    return enable_x64(on)


@pytest.fixture
def float64():
    with enable_x64(True):
        yield


def trap():
    """H = sigma_z + u sigma_x, |u| <= 1, |0> -> |1> in T = 5 and 8 intervals."""
    return qenvs.make("qubit/StateTransfer-v0", detuning=2.0, horizon=8, dt=5 / 8, action_bound=2.0)


def custom(rate):
    return StateTransfer(Custom(rate=rate), 6, 0.3, (0.5, 1.5), target=basis_ket(3, 2))


def propagated_fidelity(env, actions):
    """<target|rho|target> by SciPy's exponential of the Liouvillian, row stacking, complex128."""
    model, bound = env.model, np.broadcast_to(env.action_bound, (env.action_dim,))
    one = np.eye(int(np.prod(model.dims)))
    psi = np.asarray(model.initial_state(), complex)
    rho = np.outer(psi, psi.conj()).reshape(-1)
    for row in np.clip(np.asarray(actions, float), -bound, bound):
        h = sum(float(w) * m for w, m in model.drift_terms())
        h = h + sum(u * m for u, m in zip(row, model.control_operators(), strict=True))
        step = -1j * (np.kron(h, one) - np.kron(one, h.T))
        for rate, jump in model.jump_terms():
            n = jump.conj().T @ jump / 2
            step = step + float(rate) * np.kron(jump, jump.conj())
            step = step - float(rate) * (np.kron(n, one) + np.kron(one, n.T))
        rho = expm(float(env.dt) * step) @ rho
    target = np.asarray(env.target)
    return float((target.conj() @ rho.reshape(one.shape) @ target).real)


def stepped_fidelity(env, actions, key):
    state, _ = env.reset(key)
    for action in actions:
        state, timestep = env.step(state, action)
    assert timestep.done
    return float(state.base.value)


@pytest.mark.parametrize(("task", "kwargs"), TASKS)
def test_OP_1_OP_2_the_reported_fidelity_is_that_of_stepping_and_of_expm(task, kwargs):
    env = qenvs.make(task, **kwargs)
    result = optimize(env, key=jax.random.PRNGKey(1))
    assert result.converged
    assert result.value > float(env.rollout(np.zeros(result.actions.shape))[0].value) + 0.5
    stepped = stepped_fidelity(env, result.actions, jax.random.PRNGKey(1))
    assert result.value == pytest.approx(stepped, abs=1e-5)
    assert result.value == pytest.approx(propagated_fidelity(env, result.actions), abs=1e-5)


@pytest.mark.parametrize("bound", [np.pi / 3, (np.pi / 3, 0.1)])
def test_OP_4_amplitudes_never_exceed_the_bound_of_their_channel(bound):
    env = StateTransfer(Custom(), 4, 0.3, bound, target=basis_ket(3, 2))
    result = optimize(env)
    largest = np.abs(result.actions.astype(float)).max(axis=0)
    assert np.all(largest <= np.broadcast_to(bound, 2))  # np.float32(pi/3) is above pi/3
    assert largest[0] == pytest.approx(np.pi / 3, rel=1e-6)  # and the bound is used


def test_OP_4_a_guess_beyond_the_bound_is_clipped_as_the_environment_clips():
    env = custom(0.0)
    guess = np.full((6, 2), [0.7, -0.2])
    result = optimize(env, guess, max_iterations=0)
    np.testing.assert_allclose(result.actions, np.full((6, 2), [0.5, -0.2]), rtol=1e-6)
    assert result.value == pytest.approx(float(env.rollout(guess)[0].value), abs=1e-6)


def test_OP_6_the_guess_is_kept_returned_by_no_iterations_and_opens_the_history():
    env = qenvs.make("qubit/StateTransfer-v0")
    guess = np.linspace(0.1, 0.7, 20, dtype=np.float32)[:, None]
    copy = guess.copy()
    idle, result = optimize(env, guess, max_iterations=0), optimize(env, guess)
    np.testing.assert_array_equal(guess, copy)
    np.testing.assert_array_equal(idle.actions, guess)
    assert not np.shares_memory(idle.actions, guess)
    assert (idle.reason, idle.iterations, idle.converged) == ("max_iterations", 0, False)
    value = float(env.rollout(guess)[0].value)
    assert idle.history == pytest.approx([value], abs=1e-6) and idle.value == idle.history[0]
    assert result.history[0] == pytest.approx(value, abs=1e-6)


def test_OP_8_a_stationary_start_is_left_and_reported(float64):
    env = trap()
    value, gradient = grape._value_and_gradient(env, jax.random.PRNGKey(0), np.zeros((8, 1)))
    assert value == 0 and not np.any(gradient)
    result = optimize(env, np.zeros((8, 1)))
    assert result.perturbed and result.converged and 1 - result.value < 1e-12
    assert result.history[0] == 0 and result.history[1] > 0


def test_OP_8_where_moving_changes_nothing_the_start_is_stationary_not_a_success():
    env = StateTransfer(Custom(), 4, 1e-12, 0.5, target=basis_ket(3, 2))
    result = optimize(env, np.zeros((4, 2)))
    assert (result.reason, result.converged, result.perturbed) == ("stationary", False, True)
    np.testing.assert_array_equal(result.actions, 0)


def test_OP_8_a_low_start_with_a_healthy_gradient_is_accepted(float64):
    result = optimize(trap(), np.full((8, 1), 0.02))
    assert result.history[0] < 1e-3
    assert not result.perturbed and result.converged and 1 - result.value < 1e-12


@pytest.mark.parametrize("x64", [False, True])
def test_OP_8_PH_9_an_optimal_guess_is_accepted_and_returned(x64):
    with enable_x64(x64):
        env = qenvs.make("qubit/StateTransfer-v0")
        guess = np.full((20, 1), np.pi / 2, np.float64 if x64 else np.float32)
        result = optimize(env, guess)
    assert result.converged and np.isfinite(result.gradient_norm)
    assert result.value == pytest.approx(1, abs=1e-6)
    np.testing.assert_array_equal(result.actions, guess)


@pytest.mark.parametrize("seed", range(4))
def test_the_trap_is_solved_to_twelve_digits_from_random_guesses(float64, seed):
    result = optimize(trap(), key=jax.random.PRNGKey(seed))
    assert result.converged and 1 - result.value < 1e-12
    assert 1 - propagated_fidelity(trap(), result.actions) < 1e-12


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_OP_10_the_gradient_agrees_with_central_differences(float64, rate):
    env, h = custom(rate), 1e-5
    actions = np.random.default_rng(0).uniform(-0.4, 0.4, (6, 2))
    _, gradient = grape._value_and_gradient(env, jax.random.PRNGKey(0), actions)
    expected = np.zeros_like(actions)
    for index in np.ndindex(actions.shape):
        up, down = actions.copy(), actions.copy()
        up[index] += h
        down[index] -= h
        difference = propagated_fidelity(env, up) - propagated_fidelity(env, down)
        expected[index] = difference / (2 * h)
    assert np.linalg.norm(gradient - expected) <= 1e-6 * np.linalg.norm(expected)


def test_OP_11_the_search_says_why_it_stopped_and_what_it_did():
    env = custom(0.0)
    seen = []
    result = optimize(env, progress=lambda *report: seen.append(report))
    assert result.reason in ("gradient", "precision") and result.message
    assert result.iterations == len(result.history) - 1 == len(seen)
    assert seen == list(enumerate(result.history.tolist()))[1:]
    assert np.all(np.diff(result.history) >= 0) and result.value >= result.history[-1] - 1e-6
    assert result.evaluations > result.iterations
    # float32 runs out of digits of F before the gradient is small
    assert result.gradient_norm < (1e-3 if result.reason == "gradient" else 0.1)
    short = optimize(env, max_iterations=2)
    assert (short.reason, short.iterations, short.converged) == ("max_iterations", 2, False)
    np.testing.assert_array_equal(short.history, result.history[:3])


def test_the_gradient_norm_leaves_out_what_the_bound_blocks():
    result = optimize(Walk())  # F = sum u: every amplitude ends at the bound
    np.testing.assert_array_equal(result.actions, 2.0)
    assert result.value == 6.0 and result.gradient_norm == 0 and result.reason == "gradient"


def test_an_interrupt_returns_the_best_pulse_so_far():
    def stop(iteration, value):
        if iteration == 3:
            raise KeyboardInterrupt

    env = custom(0.0)
    result, full = optimize(env, progress=stop), optimize(env)
    assert (result.reason, result.converged, result.iterations) == ("interrupted", False, 3)
    assert full.history[2] < result.value < full.value
    assert result.value == pytest.approx(float(env.rollout(result.actions)[0].value), abs=1e-6)


def test_a_search_is_the_same_for_the_same_key_and_another_for_another():
    env = custom(0.0)
    one, same, other = (optimize(env, key=jax.random.PRNGKey(k)) for k in (1, 1, 2))
    np.testing.assert_array_equal(one.actions, same.actions)
    assert not np.array_equal(one.actions, other.actions)


class Shifted(Wrapper):
    """Adds an offset, drawn from the episode key, to every action."""

    def step(self, state, action):
        draw = jax.random.uniform(keys.parameter_key(state.key, "offset"), dtype=np.float32)
        return super().step(state, action + draw)


def test_a_wrapped_environment_is_optimised_for_the_episode_of_the_key():
    env, key = Shifted(qenvs.make("qubit/StateTransfer-v0")), jax.random.PRNGKey(7)
    result = optimize(env, key=key)
    assert result.value == pytest.approx(1, abs=1e-5)
    assert result.value == pytest.approx(stepped_fidelity(env, result.actions, key), abs=1e-6)
    assert stepped_fidelity(env, result.actions, jax.random.PRNGKey(8)) < 0.999


def test_another_number_of_the_model_compiles_nothing_anew():
    tally = Tally()
    for detuning in (0.1, 0.2, 0.3):
        optimize(Tallied(qenvs.make("qubit/StateTransfer-v0", detuning=detuning), tally))
    assert tally.steps == 1


def test_what_cannot_be_a_guess_is_refused():
    env = custom(0.0)
    with pytest.raises(ValueError, match=r"`guess` must have shape \(6, 2\), got \(6,\)"):
        optimize(env, np.zeros(6))
    with pytest.raises(ValueError, match="`guess` must be finite"):
        optimize(env, np.full((6, 2), np.nan))
    with pytest.raises(ValueError, match="`max_iterations` must be >= 0"):
        optimize(env, max_iterations=-1)
