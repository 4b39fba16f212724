"""Battery charging: rewards, info, references, derivatives, custom models."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qenvs
from brute_force import enable_x64, play
from qenvs.envs import BatteryCharging
from qenvs.models import HamiltonianModel, LambdaSystem, QubitBattery, TwoLevel
from qenvs.models.battery import embed

COMMON = {"energy", "ergotropy", "power", "purity"}
CAVITY = {*COMMON, "n_photons", "excitation", "top_fock"}
INFO = {
    "battery/TwoLevel-v0": {*COMMON, "p1"},
    "battery/Dicke-v0": CAVITY,
    "battery/DickeLocal-v0": {*CAVITY, "symmetric"},
    "transfer/LambdaSTIRAP-v0": {"fidelity", "p1", "p2", "p3"},
}
RUN = {"horizon", "dt", "action_bound", "method"}
CELLS = {
    *("n_cells", "n_photons", "n_max", "omega0", "omega_c", "rwa", "kappa", "gamma", "gamma_phi"),
    *("reward", *RUN),
}
KWARGS = {
    "battery/TwoLevel-v0": {
        *("omega0", "detuning", "gamma1", "n_th", "gamma_phi", "initial", "reward", *RUN)
    },
    "battery/Dicke-v0": CELLS,
    "battery/DickeLocal-v0": {*CELLS, "gamma_local", "gamma_phi_local", "pumping_local"},
    "transfer/LambdaSTIRAP-v0": {"delta_one_photon", "delta_two_photon", "gamma", *RUN},
}


@pytest.mark.parametrize("task", INFO)
def test_names_are_a_contract(task):
    assert set(qenvs.registry[task].kwargs()) == KWARGS[task]
    env = qenvs.make(task)
    _, timestep = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    assert set(timestep.info) == INFO[task]


@pytest.mark.parametrize("reward", ["energy", "ergotropy"])
def test_the_return_is_the_gain_of_what_is_rewarded(reward):
    env = qenvs.make("battery/Dicke-v0", reward=reward, kappa=0.1, n_cells=2, omega0=1.3, horizon=6)
    state, info, rewards = play(env, np.full((6, 1), 0.5))
    np.testing.assert_allclose(rewards, np.diff(info[reward]), atol=1e-6)
    assert rewards.sum() == pytest.approx(info[reward][-1] - info[reward][0], abs=1e-6)
    assert float(state.value) == pytest.approx(info[reward][-1])
    assert rewards.sum() > 0.1
    times = 0.2 * np.arange(1, 7)
    np.testing.assert_allclose(info["power"], [0, *(info["energy"][1:] / times)], atol=1e-6)


def test_a_pi_pulse_stores_one_quantum():
    for horizon, dt in ((20, 0.1), (7, 0.5)):
        env = qenvs.make("battery/TwoLevel-v0", horizon=horizon, dt=dt, omega0=1.5)
        pulse = qenvs.registry["battery/TwoLevel-v0"].reference_pulse(env)
        assert pulse.shape == (horizon, 1)
        _, info, rewards = play(env, pulse)
        assert rewards.sum() == pytest.approx(1.5, abs=1e-5)
        assert info["ergotropy"][-1] == pytest.approx(1.5, abs=1e-5)


def test_defaults_of_the_tasks():
    qubit, dicke = qenvs.make("battery/TwoLevel-v0"), qenvs.make("battery/Dicke-v0")
    assert (qubit.horizon, float(qubit.dt), float(qubit.action_bound)) == (20, 0.1, 2.0)
    assert (dicke.horizon, float(dicke.dt), float(dicke.action_bound)) == (20, 0.2, 0.5)
    assert (qubit.reward, qubit.observation_dim, dicke.observation_dim) == ("energy", 5, 33)
    assert qenvs.make("battery/Dicke-v0", kappa=0.1).observation_dim == 2 * 16**2 + 1
    assert qenvs.registry["battery/Dicke-v0"].reference is None


@pytest.mark.claims("G-IF-5")
@pytest.mark.parametrize("kwargs", [{"rwa": False}, {"kappa": 0.2, "gamma": 0.1}])
@pytest.mark.parametrize("reward", ["energy", "ergotropy"])
def test_gradients_of_the_return_match_central_differences(kwargs, reward):
    with enable_x64():
        env = qenvs.make("battery/Dicke-v0", n_cells=2, horizon=4, reward=reward, **kwargs)

        @jax.jit
        def total(actions):
            return env.rollout(actions)[1].sum()

        actions = np.random.default_rng(0).uniform(-0.4, 0.4, (4, 1))
        gradient, h = np.asarray(jax.jit(jax.grad(total))(actions)), 1e-5
        for k in range(4):
            nudge = h * np.eye(4)[k][:, None]
            slope = (float(total(actions + nudge)) - float(total(actions - nudge))) / (2 * h)
            assert gradient[k, 0] == pytest.approx(slope, rel=1e-6, abs=1e-9)


@pytest.mark.claims("G-IF-3", "G-IF-4")
def test_jit_and_vmap_agree_with_single_steps():
    env = qenvs.make("battery/Dicke-v0", reward="ergotropy", gamma=0.1)
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    state, _ = jax.jit(jax.vmap(env.reset))(keys)
    actions = jnp.array([[0.5], [-0.2], [9.0]])
    _, batch = jax.jit(jax.vmap(env.step))(state, actions)
    one, step = jax.tree.map(lambda leaf: leaf[0], state), jax.jit(env.step)
    for k, action in enumerate([0.5, -0.2, 0.5]):  # the third is clipped
        _, single = step(one, jnp.array([action]))
        jax.tree.map(
            lambda a, b, k=k: np.testing.assert_allclose(a[k], b, atol=1e-6), batch, single
        )


def test_any_model_with_a_battery_is_charged():
    _, info, _ = play(BatteryCharging(TwoLevel(), 4, 0.5, 2.0), np.full((4, 1), np.pi / 2))
    assert info["energy"][-1] == pytest.approx(1, abs=1e-6)


def test_a_custom_model_like_the_built_in_one():
    """The qubit battery once more, from operators: the same numbers."""
    x, z = np.array([[0, 1], [1, 0]]), np.diag([1, -1])
    lowering = np.array([[0, 1], [0, 0]])
    custom = HamiltonianModel.from_operators(
        drift=0.3 * z / 2,
        controls=[x / 2],
        jump_ops=[np.sqrt(0.2) * lowering],
        initial_state=[1, 0],
        battery_hamiltonian=np.diag([0, 1.5]),
    )
    builtin = QubitBattery(omega0=1.5, detuning=0.3, gamma1=0.2)
    actions = np.random.default_rng(0).uniform(-2, 2, (5, 1))
    runs = [
        play(BatteryCharging(model, 5, 0.3, 2.0, reward="ergotropy"), actions)
        for model in (custom, builtin)
    ]
    for name in COMMON:
        np.testing.assert_allclose(runs[0][1][name], runs[1][1][name], atol=1e-6)


def test_a_charger_and_a_battery_from_operators():
    """Two qubits exchange one quantum: E = sin^2(g t), ergotropy max(2E - 1, 0)."""
    lowering = np.array([[0, 1], [0, 0]])
    exchange = np.kron(lowering, lowering.T)
    model = HamiltonianModel.from_operators(
        drift=np.zeros((4, 4)),
        controls=[exchange + exchange.T],
        initial_state=np.eye(4)[2],  # |10>: the charger is full
        dims=(2, 2),
        battery_hamiltonian=np.diag([0, 1]),
        battery_subsystems=1,
    )
    _, info, _ = play(BatteryCharging(model, 6, 0.25, 1.0), np.ones((6, 1)))
    stored = np.sin(0.25 * np.arange(7)) ** 2
    np.testing.assert_allclose(info["energy"], stored, atol=1e-6)
    np.testing.assert_allclose(info["ergotropy"], np.maximum(2 * stored - 1, 0), atol=1e-6)
    assert set(info) == COMMON


def test_operators_embed_on_their_factors():
    rng = np.random.default_rng(0)
    a, c, b = (rng.normal(size=(d, d)) for d in (2, 2, 3))
    whole = np.kron(np.kron(a, b), c)
    one = embed(np.kron(a, c), (2, 3, 2), (0, 2)) @ embed(b, (2, 3, 2), (1,))
    np.testing.assert_allclose(one, whole, atol=1e-12)
    turned = embed(np.kron(c, a), (2, 3, 2), (2, 0)) @ embed(b, (2, 3, 2), (1,))
    np.testing.assert_allclose(turned, whole, atol=1e-12)


def test_what_has_no_battery_is_refused():
    with pytest.raises(TypeError, match="`model` must have a battery, got LambdaSystem"):
        BatteryCharging(LambdaSystem(), 4, 0.1, 1.0)
    bare = HamiltonianModel.from_operators(np.eye(2), [np.eye(2)])
    with pytest.raises(ValueError, match="give `battery_hamiltonian`"):
        BatteryCharging(bare, 4, 0.1, 1.0)
    with pytest.raises(ValueError, match="`reward` must be one of 'energy', 'ergotropy'"):
        qenvs.make("battery/TwoLevel-v0", reward="power")
