"""The Dicke battery against closed forms and 2^N brute force."""

import numpy as np
import pytest

import brute_force
import qenvs
from brute_force import LOWER, SIGMA_Z, cell_sum, cells_of, enable_x64, play
from qenvs.envs import BatteryCharging
from qenvs.models import DickeBattery

ACTIONS = np.random.default_rng(0).uniform(-0.5, 0.5, (4, 1))


def charge(actions, dt=0.2, **kwargs):
    return play(BatteryCharging(DickeBattery(**kwargs), len(actions), dt, 0.5), actions)


def symmetric_basis(n_cells):
    """Columns |j = N/2, m>, m ascending, in the 2^N space."""
    raising = cell_sum(LOWER.T, n_cells)
    columns = [np.eye(2**n_cells, dtype=complex)[0]]
    for _ in range(n_cells):
        raised = raising @ columns[-1]
        columns.append(raised / np.linalg.norm(raised))
    return np.array(columns).T


@pytest.mark.parametrize("photons", [1, 4])
def test_one_cell_is_the_jaynes_cummings_model(photons):
    """On resonance P1 = sin^2(g sqrt(n) t), detuned by D with contrast 4 g^2 n/(4 g^2 n + D^2)."""
    g, times = 0.3, 0.2 * np.arange(9)
    actions = np.full((8, 1), g)
    _, info, _ = charge(actions, n_cells=1, n_photons=photons)
    np.testing.assert_allclose(info["energy"], np.sin(g * np.sqrt(photons) * times) ** 2, atol=1e-6)
    _, detuned, _ = charge(actions, n_cells=1, n_photons=photons, omega_c=1.6)
    rabi = np.sqrt(4 * g**2 * photons + 0.6**2)
    want = 4 * g**2 * photons / rabi**2 * np.sin(rabi * times / 2) ** 2
    np.testing.assert_allclose(detuned["energy"], want, atol=1e-6)


def test_excitations_are_exchanged_not_made():
    _, info, _ = charge(ACTIONS)
    np.testing.assert_allclose(info["excitation"], 3, atol=1e-5)
    np.testing.assert_allclose(info["energy"] + info["n_photons"], 3, atol=1e-5)
    np.testing.assert_allclose(info["purity"], 1, atol=1e-5)
    assert np.all(info["ergotropy"] <= info["energy"] + 1e-6)
    assert np.all(info["ergotropy"] >= 0)


def test_a_leaky_cavity_loses_photons_at_kappa():
    _, info, _ = charge(np.zeros((5, 1)), kappa=0.7)
    np.testing.assert_allclose(info["n_photons"], 3 * np.exp(-0.7 * 0.2 * np.arange(6)), atol=1e-5)
    np.testing.assert_allclose(info["energy"], 0, atol=1e-6)


def test_cells_speed_each_other_up():
    """At first E = omega0 N n (g t)^2: with a photon per cell the power of a cell grows with N."""
    t, g = 0.01, 0.4
    for n in (1, 2, 4):
        _, info, _ = charge(np.full((1, 1), g), dt=t, n_cells=n)
        assert info["energy"][-1] == pytest.approx(n * n * (g * t) ** 2, rel=1e-3)


@pytest.mark.parametrize("rwa", [True, False])
@pytest.mark.parametrize("rates", [(0.0, 0.0, 0.0), (0.3, 0.2, 0.4)])
def test_everything_as_brute_force_over_all_cell_states(rwa, rates):
    n, levels, photons = 2, 3, 1
    kwargs = dict(zip(("kappa", "gamma", "gamma_phi"), rates, strict=True))
    sizes = {"n_cells": n, "n_photons": photons, "n_max": levels - 1}
    with enable_x64():
        _, info, _ = charge(ACTIONS, omega0=1.2, omega_c=0.9, rwa=rwa, **sizes, **kwargs)
    cavity, a = np.eye(levels), np.diag(np.sqrt(np.arange(1, levels)), k=1)
    lowering = np.kron(cell_sum(LOWER, n), cavity)
    number = cell_sum(np.diag([0.0, 1.0]), n)
    photon = np.kron(np.eye(2**n), a)
    exchange = photon.T @ lowering if rwa else (photon + photon.T) @ lowering
    drift = 1.2 * np.kron(number, cavity) + 0.9 * photon.T @ photon
    spin_z = np.kron(-cell_sum(SIGMA_Z, n) / 2, cavity)
    jumps = [np.sqrt(r) * j for r, j in zip(rates, (photon, lowering, spin_z), strict=True)]
    start = np.eye(levels * 2**n)[photons]
    coupled = [drift + g * (exchange + exchange.conj().T) for (g,) in ACTIONS]
    states = brute_force.trajectory(np.outer(start, start), coupled, jumps, 0.2)
    kept = symmetric_basis(n)
    for k, rho in enumerate(states):
        cells = kept.conj().T @ cells_of(rho, n) @ kept
        work = brute_force.ergotropy(cells, 1.2 * np.diag(np.arange(n + 1.0)))
        photons_k = np.trace(rho @ photon.T @ photon).real
        top = np.trace(rho @ np.kron(np.eye(2**n), np.diag(cavity[-1]))).real
        want = [1.2 * np.trace(cells_of(rho, n) @ number).real, work, photons_k, top]
        got = [info[name][k] for name in ("energy", "ergotropy", "n_photons", "top_fock")]
        np.testing.assert_allclose(got, want, atol=1e-11)
        assert info["purity"][k] == pytest.approx(np.trace(rho @ rho).real, abs=1e-11)


def test_gamma_phi_damps_neighbouring_levels_at_half_its_value():
    (_, _, (rate, z)) = DickeBattery(n_cells=1, n_photons=0, gamma_phi=0.8).jump_terms()
    total = brute_force.liouvillian(np.zeros((2, 2)), [np.sqrt(float(rate)) * z])
    assert total[1, 1] == pytest.approx(-0.4)


@pytest.mark.claims("W-OM-7")
def test_correlators_are_the_second_moments_of_the_collective_spin():
    model = DickeBattery(n_cells=3)
    correlators = model.correlation_observables()
    assert list(correlators) == ["Jx2", "Jy2", "Jz2", "JxJy", "JyJz", "JzJx"]
    start = model.initial_state()
    values = {name: (start.conj() @ o @ start).real for name, o in correlators.items()}
    cross = dict.fromkeys(("JxJy", "JyJz", "JzJx"), 0)
    assert values == pytest.approx({"Jx2": 0.75, "Jy2": 0.75, "Jz2": 2.25, **cross})
    casimir = correlators["Jx2"] + correlators["Jy2"] + correlators["Jz2"]
    np.testing.assert_allclose(casimir, 1.5 * 2.5 * np.eye(16), atol=1e-12)
    basis = symmetric_basis(3)
    x, y = cell_sum(LOWER + LOWER.T, 3) / 2, cell_sum(1j * (LOWER - LOWER.T), 3) / 2
    want = np.kron(basis.conj().T @ (x @ y + y @ x) @ basis / 2, np.eye(4))
    np.testing.assert_allclose(correlators["JxJy"], want, atol=1e-12)
    for operator in correlators.values():
        np.testing.assert_allclose(operator, operator.conj().T)


def test_cutoffs_and_what_has_to_be_watched():
    assert DickeBattery().n_photons == DickeBattery().n_max == 3
    assert DickeBattery(n_cells=2, n_photons=5).n_max == 5
    assert DickeBattery(rwa=False).n_max == 7
    assert DickeBattery().truncations() == {}
    assert DickeBattery(rwa=False).truncations() == {"top_fock": "n_max"}


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"n_cells": 0}, ValueError, "`n_cells` must be >= 1"),
        ({"n_cells": 2.5}, TypeError, "`n_cells` must be an integer"),
        ({"n_photons": 4, "n_max": 3}, ValueError, "`n_max` must be >= n_photons = 4, got 3"),
        ({"rwa": 1}, TypeError, "`rwa` must be True or False"),
        ({"kappa": -1.0}, ValueError, "`kappa` must be >= 0"),
        ({"omega_c": -1.0}, ValueError, "`omega_c` must be >= 0"),
    ],
)
def test_what_cannot_be_is_refused(kwargs, error, message):
    with pytest.raises(error, match=message):
        DickeBattery(**kwargs)


def test_only_the_cavity_frequency_is_a_parameter():
    model = DickeBattery()
    ((name, spec),) = model.parameter_specs().items()
    assert (name, spec.support, spec.w_ref) == ("omega_c", (0.0, np.inf), 0.05)
    for fixed, reason in (("kappa", "open"), ("n_cells", "shape"), ("n_max", "shape")):
        with pytest.raises(ValueError, match=reason):
            model.with_parameters(**{fixed: 1})
    assert model.with_parameters(omega_c=1.4).n_max == 3


def test_the_battery_is_the_cells():
    model = DickeBattery(n_cells=2, omega0=1.5)
    np.testing.assert_allclose(model.battery_hamiltonian(), np.diag([0, 1.5, 3]))
    np.testing.assert_allclose(
        model.battery_reduced(model.initial_state()), np.diag([1, 0, 0]), atol=1e-7
    )


def test_large_open_batteries_are_built_on_what_they_reach():
    env = qenvs.make("battery/Dicke-v0", n_cells=10, kappa=0.1)
    assert env.generator.coordinates.size == sum(n * n for n in range(1, 12))
