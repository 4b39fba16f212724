"""The qubit battery against closed forms and a brute-force Liouvillian."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import brute_force
from brute_force import LOWER, SIGMA_Z, enable_x64, play
from qenvs.envs import BatteryCharging
from qenvs.models import QubitBattery

SIGMA_X = LOWER + LOWER.T
EXCITED = np.diag([0.0, 1.0])
ACTIONS = np.random.default_rng(0).uniform(-2, 2, (6, 1))


def charge(actions, dt=0.3, **kwargs):
    model = QubitBattery(**kwargs)
    return play(BatteryCharging(model, len(actions), dt, 2.0), actions)


def test_a_bath_alone_heats_to_the_gibbs_state():
    """P1 = n/(2n + 1) (1 - exp(-gamma1 (2n + 1) t)), passive all the way."""
    n_th, gamma1, times = 0.5, 0.4, 0.3 * np.arange(7)
    _, info, _ = charge(np.zeros((6, 1)), gamma1=gamma1, n_th=n_th)
    heated = n_th / (2 * n_th + 1) * -np.expm1(-gamma1 * (2 * n_th + 1) * times)
    np.testing.assert_allclose(info["p1"], heated, atol=1e-6)
    np.testing.assert_allclose(info["ergotropy"], 0, atol=1e-6)
    np.testing.assert_allclose(info["power"][1:], heated[1:] / times[1:], rtol=1e-4)
    assert info["power"][0] == 0


def test_a_thermal_start_is_passive_and_stays():
    _, info, _ = charge(np.zeros((6, 1)), gamma1=0.4, n_th=0.5, initial="thermal", omega0=2.0)
    np.testing.assert_allclose(info["energy"], 2 * 0.25, atol=1e-6)
    np.testing.assert_allclose(info["ergotropy"], 0, atol=1e-6)
    np.testing.assert_allclose(info["purity"], 0.75**2 + 0.25**2, atol=1e-6)


def test_every_rate_as_the_brute_force_liouvillian():
    kwargs = {"detuning": 0.4, "gamma1": 0.2, "n_th": 0.3, "gamma_phi": 0.1}
    with enable_x64():
        state, info, rewards = charge(ACTIONS, omega0=1.5, **kwargs)
        last = np.asarray(state.array)
    jumps = [np.sqrt(0.2 * 1.3) * LOWER, np.sqrt(0.2 * 0.3) * LOWER.T, np.sqrt(0.05) * SIGMA_Z]
    hamiltonians = [0.2 * SIGMA_Z + u / 2 * SIGMA_X for (u,) in ACTIONS]
    states = brute_force.trajectory(np.diag([1.0, 0]), hamiltonians, jumps, 0.3)
    np.testing.assert_allclose(last, states[-1], atol=1e-12)
    energies = np.array([1.5 * rho[1, 1].real for rho in states])
    work = [brute_force.ergotropy(rho, 1.5 * EXCITED) for rho in states]
    np.testing.assert_allclose(info["energy"], energies, atol=1e-12)
    np.testing.assert_allclose(info["ergotropy"], work, atol=1e-12)
    np.testing.assert_allclose(info["purity"], [np.trace(r @ r).real for r in states], atol=1e-12)
    np.testing.assert_allclose(rewards, np.diff(energies), atol=1e-12)


def test_a_pure_qubit_gives_up_all_its_energy_and_the_drive_bounds_the_power():
    _, info, rewards = charge(ACTIONS, dt=0.05, detuning=0.7, omega0=1.5)
    np.testing.assert_allclose(info["ergotropy"], info["energy"], atol=1e-6)
    np.testing.assert_allclose(info["purity"], 1, atol=1e-6)
    assert np.all(abs(rewards) <= 1.5 * 0.05 * abs(ACTIONS[:, 0]) / 2 + 1e-7)


def test_gamma_phi_is_the_rate_at_which_the_coherence_decays():
    actions = np.concatenate([[[np.pi / 2 / 0.8]], np.zeros((5, 1))])
    state, _, _ = charge(actions, dt=0.8, gamma_phi=0.0)
    dephased, _, _ = charge(np.zeros((1, 1)), dt=0.8, gamma_phi=0.5, initial="ground")
    assert abs(state.array[0] * state.array[1]) == pytest.approx(0.5, abs=1e-6)
    np.testing.assert_allclose(dephased.array, np.diag([1, 0]), atol=1e-6)
    model = QubitBattery(gamma_phi=0.5)
    weights = [(float(rate), jump) for rate, jump in model.jump_terms()]
    total = brute_force.liouvillian(np.zeros((2, 2)), [np.sqrt(r) * j for r, j in weights])
    assert total[1, 1] == pytest.approx(-0.5)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"initial": "thermal", "n_th": 0.5}, "needs an open model"),
        ({"initial": "excited"}, "must be one of 'ground', 'thermal'"),
        ({"gamma1": -0.1}, "`gamma1` must be >= 0"),
        ({"n_th": -1.0}, "`n_th` must be >= 0"),
        ({"omega0": 0.0}, "`omega0` must be > 0"),
        ({"detuning": np.nan}, "`detuning` must be finite"),
    ],
)
def test_what_cannot_be_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        QubitBattery(**kwargs)


def test_a_thermal_start_at_zero_temperature_is_the_ground_state():
    assert QubitBattery(initial="thermal").initial_state().tolist() == [1, 0]


def test_only_the_detuning_is_a_parameter_and_rates_say_why_not():
    model = QubitBattery(gamma1=0.1, n_th=0.2)
    ((name, spec),) = model.parameter_specs().items()
    assert (name, spec.unit, spec.w_ref) == ("detuning", "omega0", 0.05)
    assert spec.support == (-np.inf, np.inf)
    assert model.parameter_values() == {"detuning": 0.0}
    for fixed in ("gamma1", "n_th", "gamma_phi"):
        with pytest.raises(ValueError, match="decides whether the system is open"):
            model.with_parameters(**{fixed: 0.3})


def test_parameters_may_be_traced():
    model = QubitBattery(omega0=2.0)

    def coefficient(detuning):
        return model.with_parameters(detuning=detuning).drift_terms()[0][0]

    np.testing.assert_allclose(jax.jit(jax.vmap(coefficient))(jnp.arange(3.0)), [0, 1, 2])
    assert eqx.tree_equal(model.with_parameters(detuning=0.0), model)
    np.testing.assert_allclose(model.battery_hamiltonian(), 2 * EXCITED)
    np.testing.assert_allclose(
        model.battery_reduced(np.array([0.6, 0.8])), [[0.36, 0.48], [0.48, 0.64]]
    )
