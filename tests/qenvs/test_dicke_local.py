"""The Dicke battery with local dissipation against 2^N brute force, PIQS and closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qutip.piqs
from scipy.linalg import block_diag

import brute_force
import qenvs
from brute_force import (
    LOWER,
    SIGMA_Z,
    cell_sum,
    cells_of,
    enable_x64,
    on_cell,
    play,
    random_density,
)
from qenvs.envs import BatteryCharging
from qenvs.models import DickeBattery, DickeBatteryLocal
from qenvs.models.spin import local_jumps, sectors

ACTIONS = np.random.default_rng(0).uniform(-0.5, 0.5, (3, 1))


def charge(actions, dt=0.2, model=DickeBatteryLocal, **kwargs):
    return play(BatteryCharging(model(**kwargs), len(actions), dt, 0.5), actions)


def symmetric_projector(n_cells):
    """Projector on the largest total spin, from J^2."""
    x, y = cell_sum(LOWER + LOWER.T, n_cells) / 2, cell_sum(1j * (LOWER - LOWER.T), n_cells) / 2
    z = cell_sum(SIGMA_Z, n_cells) / 2
    values, vectors = np.linalg.eigh(x @ x + y @ y + z @ z)
    kept = vectors[:, values > values[-1] - 1e-6]
    return kept @ kept.conj().T


RATES = {"kappa": 0.2, "gamma": 0.15, "gamma_phi": 0.25}
LOCAL = {"gamma_local": 0.3, "gamma_phi_local": 0.4}


@pytest.mark.parametrize(
    "kwargs",
    [
        {"n_cells": 2, "n_photons": 2, **LOCAL},
        {"n_cells": 2, "n_photons": 1, "n_max": 2, "rwa": False, **RATES, **LOCAL},
        {"n_cells": 2, "n_photons": 1, "n_max": 2, "pumping_local": 0.5, **RATES, **LOCAL},
        {"n_cells": 3, "n_photons": 1, "pumping_local": 0.5, "n_max": 1, "rwa": False, **LOCAL},
        pytest.param({"n_cells": 3, **RATES, **LOCAL}, marks=pytest.mark.slow),
    ],
    ids=["emission and dephasing", "not rotating", "pumping", "three cells", "default sizes"],
)
def test_everything_as_brute_force_over_all_cell_states(kwargs):
    with enable_x64():
        _, info, _ = charge(ACTIONS, omega0=1.2, omega_c=0.9, **kwargs)
    model = DickeBatteryLocal(**kwargs)
    n, levels = model.n_cells, model.n_max + 1
    states = brute_force.trajectory(*_all_cell_states(model), 0.2)
    number = cell_sum(np.diag([0.0, 1.0]), n)
    a = np.diag(np.sqrt(np.arange(1, levels)), k=1)
    for k, rho in enumerate(states):
        cells, cavity = cells_of(rho, n), np.trace(rho.reshape(2**n, levels, 2**n, levels), 0, 0, 2)
        want = {
            "energy": 1.2 * np.trace(cells @ number).real,
            "ergotropy": brute_force.ergotropy(cells, 1.2 * number),
            "purity": np.trace(rho @ rho).real,
            "n_photons": np.trace(cavity @ a.T @ a).real,
            "top_fock": cavity[-1, -1].real,
            "symmetric": np.trace(cells @ symmetric_projector(n)).real,
        }
        for name, value in want.items():
            assert info[name][k] == pytest.approx(value, abs=1e-8), (name, k)


def _all_cell_states(model):
    """Start, Hamiltonians and jump operators on the 2^N cell states x cavity."""
    n, levels = model.n_cells, model.n_max + 1
    cavity, a = np.eye(levels), np.kron(np.eye(2**n), np.diag(np.sqrt(np.arange(1, levels)), k=1))
    lowering = np.kron(cell_sum(LOWER, n), cavity)
    excited = np.kron(cell_sum(np.diag([0.0, 1.0]), n), cavity)
    exchange = (a.T if model.rwa else a + a.T) @ lowering
    drift = 1.2 * excited + 0.9 * a.T @ a
    jumps = [
        np.sqrt(model.kappa) * a,
        np.sqrt(model.gamma) * lowering,
        np.sqrt(model.gamma_phi) * np.kron(cell_sum(SIGMA_Z, n) / 2, cavity),
    ]
    local = {"gamma_local": LOWER, "gamma_phi_local": SIGMA_Z / 2, "pumping_local": LOWER.T}
    for name, single in local.items():
        rate = np.sqrt(getattr(model, name))
        jumps += [rate * np.kron(on_cell(single, k, n), cavity) for k in range(n)]
    start = np.eye(levels * 2**n)[model.n_photons]
    coupled = [drift + g * (exchange + exchange.conj().T) for (g,) in ACTIONS]
    return np.outer(start, start), coupled, jumps


@pytest.mark.parametrize("n_cells", [3, 4, 5])
def test_local_dissipators_are_those_of_piqs(n_cells):
    """PIQS orders m downwards within a sector, and is itself good to about 1e-8."""
    kept = sectors(n_cells)
    rng = np.random.default_rng(0)
    rho = block_diag(*(random_density(rng, s.size) / len(kept) for s in kept))
    flip = block_diag(*(np.eye(s.size)[::-1] for s in kept))
    rates = {"emission": 0.3, "dephasing": 0.7, "pumping": 0.5}
    piqs = qutip.piqs.Dicke(n_cells, **rates).liouvillian()
    flipped = qutip.Qobj(flip @ rho @ flip)
    want = flip @ qutip.vector_to_operator(piqs * qutip.operator_to_vector(flipped)).full() @ flip
    jumps = [
        np.sqrt(rate) * jump for kind, rate in rates.items() for jump in local_jumps(n_cells, kind)
    ]
    got = brute_force.liouvillian(np.zeros_like(rho), jumps) @ rho.reshape(-1)
    np.testing.assert_allclose(got.reshape(rho.shape), want, atol=1e-7)


def test_pumped_cells_are_independent():
    """P1 = p/(p + g) (1 - exp(-(p + g) t)) in each cell; passive until it is inverted."""
    n, pump, loss, times = 4, 1.5, 0.5, 0.4 * np.arange(7)
    kwargs = {"n_cells": n, "n_photons": 0, "n_max": 0, "pumping_local": pump, "gamma_local": loss}
    _, info, _ = charge(np.zeros((6, 1)), dt=0.4, **kwargs)
    excited = pump / (pump + loss) * -np.expm1(-(pump + loss) * times)
    np.testing.assert_allclose(info["energy"], n * excited, atol=1e-5)
    np.testing.assert_allclose(info["ergotropy"], n * np.maximum(2 * excited - 1, 0), atol=1e-5)
    np.testing.assert_allclose(info["purity"], (excited**2 + (1 - excited) ** 2) ** n, atol=1e-5)
    assert info["ergotropy"].max() > 1


def test_one_cell_dephases_at_half_the_rate():
    model = DickeBatteryLocal(n_cells=1, n_photons=0, gamma_local=0.0, gamma_phi_local=0.6)
    jumps = [np.sqrt(float(rate)) * jump for rate, jump in model.jump_terms()]
    total = brute_force.liouvillian(np.zeros((2, 2)), jumps)
    assert total[1, 1] == pytest.approx(-0.3)


def test_without_local_rates_it_is_the_collective_battery():
    rates = {"kappa": 0.3, "gamma": 0.2, "gamma_phi": 0.3}
    actions = np.full((6, 1), 0.5)
    none = {"gamma_local": 0.0, "gamma_phi_local": 0.0}
    _, local, _ = charge(actions, **rates, **none)
    _, collective, _ = charge(actions, model=DickeBattery, **rates)
    for name in ("energy", "n_photons", "purity", "excitation"):
        np.testing.assert_allclose(local[name], collective[name], atol=1e-5)
    np.testing.assert_allclose(local["symmetric"], 1, atol=1e-5)
    assert np.all(local["ergotropy"] >= collective["ergotropy"] - 1e-5)
    assert local["ergotropy"][-1] > collective["ergotropy"][-1] + 0.01


def test_observed_are_the_blocks_from_the_largest_spin_down():
    env = qenvs.make("battery/DickeLocal-v0")
    _, timestep = env.reset(jax.random.PRNGKey(0))
    assert env.observation_dim == 2 * (16**2 + 8**2) + 1
    observed = np.asarray(timestep.observation)
    (place,) = np.flatnonzero(observed)
    assert (place, observed[place]) == (3 * 16 + 3, 1.0)  # all ground, three photons
    state, timestep = jax.jit(env.step)(env.reset(jax.random.PRNGKey(0))[0], jnp.array([0.5]))
    rho = np.asarray(state.array)
    flat = np.concatenate([rho[:16, :16].reshape(-1), rho[16:, 16:].reshape(-1)])
    want = np.concatenate([flat.real, flat.imag, [0.05]])
    np.testing.assert_allclose(timestep.observation, want, atol=1e-6)


def test_twenty_cells_are_compact():
    env = qenvs.make("battery/DickeLocal-v0", n_cells=20, n_photons=5, horizon=4)
    assert env.generator.coordinates.size == 196
    state, info, _ = play(env, np.full((4, 1), 0.5))
    lossless = np.exp(-0.05 * 0.8)
    assert 5 * lossless - 1e-4 < info["excitation"][-1] < 5
    assert 0 < info["ergotropy"][-1] < info["energy"][-1]
    assert env.generator.coordinates.trace_form @ np.asarray(state.x) == pytest.approx(1, abs=1e-5)


def test_PH_12_derivatives_at_zero_coupling_are_finite():
    env = qenvs.make("battery/DickeLocal-v0", horizon=3, reward="ergotropy")

    @jax.jit
    @jax.grad
    def gradient(actions):
        return env.rollout(actions)[1].sum()

    assert np.all(np.isfinite(gradient(jnp.zeros((3, 1)))))
    assert np.all(np.isfinite(gradient(jnp.array([[0.2], [-0.2], [0.0]]))))


def test_sizes_rates_and_the_cutoff_that_pumping_needs():
    model = DickeBatteryLocal()
    assert (model.dims, model.n_max) == ((6, 4), 3)
    assert float(model.gamma_local) == float(model.gamma_phi_local) == 0.05
    assert model.truncations() == {}
    with pytest.raises(ValueError, match="`n_max` must be given with pumping"):
        DickeBatteryLocal(pumping_local=0.1)
    pumped = DickeBatteryLocal(pumping_local=0.1, n_max=5)
    assert pumped.truncations() == {"top_fock": "n_max"}
    with pytest.raises(ValueError, match="`gamma_local` must be >= 0"):
        DickeBatteryLocal(gamma_local=-0.1)
    with pytest.raises(ValueError, match="decides whether the system is open"):
        model.with_parameters(pumping_local=0.1)
