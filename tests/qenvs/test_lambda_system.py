"""The Lambda system against a brute-force Liouvillian; its dark state and its reference pulses."""

import numpy as np
import pytest

import brute_force
import qenvs
from brute_force import enable_x64, play
from qenvs.models import LambdaSystem

TASK = "transfer/LambdaSTIRAP-v0"


def ket(k):
    return np.eye(3, dtype=complex)[k]


def hamiltonian(one, two, pump, stokes):
    """Rows and columns |1>, |2>, |3>, written out."""
    return np.array([[0, pump / 2, 0], [pump / 2, one, stokes / 2], [0, stokes / 2, two]])


@pytest.mark.parametrize("gamma", [0.0, 0.3])
def test_populations_as_the_brute_force_liouvillian(gamma):
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 2))
    env = qenvs.make(
        TASK, delta_one_photon=0.4, delta_two_photon=-0.3, gamma=gamma, horizon=5, dt=0.7
    )
    with enable_x64():
        _, info, rewards = play(env, actions)
    decay = [np.sqrt(gamma / 2) * np.outer(ket(to), ket(1)) for to in (0, 2)]
    steps = [hamiltonian(0.4, -0.3, *row) for row in actions]
    states = brute_force.trajectory(np.diag([1.0, 0, 0]), steps, decay, 0.7)
    for k in range(3):
        want = [rho[k, k].real for rho in states]
        np.testing.assert_allclose(info[f"p{k + 1}"], want, atol=1e-12)
    np.testing.assert_allclose(info["fidelity"], info["p3"], atol=1e-14)
    np.testing.assert_allclose(rewards.sum(), states[-1][2, 2].real, atol=1e-12)


def test_the_dark_state_has_no_share_of_the_lossy_level():
    pump, stokes = 0.7, 0.4
    model = LambdaSystem(delta_one_photon=0.5)
    (one, drift), (two, _), (p, s) = *model.drift_terms(), model.control_operators()
    total = float(one) * drift + pump * p + stokes * s
    assert float(two) == 0
    np.testing.assert_allclose(total @ (stokes * ket(0) - pump * ket(2)), 0, atol=1e-15)


def test_stirap_goes_past_the_lossy_level_and_the_intuitive_order_does_not():
    env = qenvs.make(TASK)
    pulses = qenvs.registry[TASK].reference_pulse(env)
    assert pulses.shape == (100, 2)
    assert np.argmax(pulses[:, 1]) < np.argmax(pulses[:, 0])
    assert pulses.max() == pytest.approx(1.0, abs=1e-3)
    _, info, _ = play(env, pulses)
    assert info["fidelity"][-1] == pytest.approx(0.9964, abs=5e-5)
    assert info["p2"].max() < 0.15
    _, wrong, _ = play(env, pulses[:, ::-1])
    assert wrong["fidelity"][-1] < 0.3


def test_the_task_and_its_parameters():
    env = qenvs.make(TASK)
    assert (env.horizon, float(env.dt), float(env.action_bound)) == (100, 0.2, 1.0)
    assert (env.action_dim, env.observation_dim) == (2, 7)
    assert qenvs.make(TASK, gamma=0.1).observation_dim == 19
    assert env.model.control_names == ("omega_p", "omega_s")
    specs = env.model.parameter_specs()
    assert {name: spec.w_ref for name, spec in specs.items()} == {
        "delta_one_photon": 0.05,
        "delta_two_photon": 0.01,
    }
    with pytest.raises(ValueError, match="decides whether the system is open"):
        env.model.with_parameters(gamma=0.1)
    with pytest.raises(ValueError, match="`gamma` must be >= 0"):
        LambdaSystem(gamma=-1)
    with pytest.raises(ValueError, match="`delta_two_photon` must be finite"):
        LambdaSystem(delta_two_photon=np.inf)
