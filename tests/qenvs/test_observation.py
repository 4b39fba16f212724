"""ObservationModel: what the modes show, what `info` holds, and `measure`."""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import qenvs
from observed import (
    KEY,
    QUBIT,
    SPINS,
    info_names,
    player,
    players,
    pulse,
    qubit,
    rotated,
    seen,
    spin_states,
    spinless,
    spins,
)
from qenvs.distributions import Normal
from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.models.two_level import SIGMA_Z, TwoLevel
from qenvs.testing import check_env
from qenvs.wrappers import (
    ControlErrors,
    EpisodeStatistics,
    ObservationModel,
    ParameterRandomization,
    Wrapper,
    observation,
)
from qenvs.wrappers.observation import (
    COST_INFO_KEYS,
    observation_kind,
)
from systems import Custom, Walk, rabi_fidelities

MEASURED, PARTIAL = ("expectations", "correlations"), ("expectations", "correlations", "time")


@functools.cache
def noisy_device():
    """A qubit with a drawn detuning, which the oracle shows, and errors of the controls."""
    device = ParameterRandomization(qubit(), {"detuning": Normal(0.3)}, oracle=True)
    return ControlErrors(device, Normal(0.1), step_noise=Normal(0.1))


# --- modes ---


@pytest.mark.claims("W-OM-1")
def test_a_wrapper_with_its_parameters():
    assert issubclass(ObservationModel, Wrapper)
    parameters = inspect.signature(ObservationModel).parameters
    defaults = {name: p.default for name, p in parameters.items() if name != "env"}
    documented = {"observation": "state", "shots": None, "diagnostics": False, "observables": None}
    assert defaults == {**documented, "readout": None}
    assert list(parameters)[:5] == ["env", *documented]
    env = ObservationModel(qubit(), "expectations", 7, True, ["p1"])
    assert (env.observation, env.shots, env.observable_names) == ("expectations", 7, ("p1",))


@pytest.mark.claims("W-OM-2", "W-OM-13", "W-IB-3", "W-OA-14")
@pytest.mark.parametrize("task", [QUBIT, "transmon/XGate-v0"])
def test_state_mode_passes_observation_and_info_through(task):
    base = qenvs.make(task, horizon=4)
    actions = pulse(base)
    plain, *_ = player(base)(actions, KEY)
    same, *_ = player(ObservationModel(base))(actions, KEY)
    assert np.array_equal(same.observation, plain.observation)
    assert set(same.info) == set(plain.info) and "fidelity" in plain.info
    for name, values in plain.info.items():
        np.testing.assert_array_equal(same.info[name], values)


@pytest.mark.claims("W-OM-3", "W-OM-5", "W-SH-9", "W-OM-14", "W-OA-13")
@pytest.mark.parametrize("dephased", [False, True], ids=["ket", "density matrix"])
def test_expectation_values_in_the_order_of_the_model_then_the_time(dephased):
    base = spins(dephased)
    actions = pulse(base)
    states = spin_states(actions, dephased)
    exact = [[np.trace(rho @ o).real for o in SPINS.values()] for rho in states]
    for inner in (base, EpisodeStatistics(base)):
        env = seen(inner, "expectations")
        assert env.observable_names == tuple(SPINS)
        observed = player(env)(actions, KEY)[0].observation
        assert observed.shape == (4, env.observation_dim) and observed.dtype == np.float32
        np.testing.assert_allclose(observed[:, :-1], exact, atol=3e-6)
        np.testing.assert_allclose(observed[:, -1], [0, 1 / 3, 2 / 3, 1], rtol=2e-7)


class Scaled(TwoLevel):
    """An observable that depends on the parameter that is drawn."""

    def observable_terms(self):
        return {"shift": (self.detuning, SIGMA_Z)}


@pytest.mark.claims("W-OM-4", "W-SH-8")
@pytest.mark.parametrize(("inside", "shots"), [(True, None), (False, None), (True, 400)])
def test_operators_are_nominal_and_states_those_of_the_device(inside, shots):
    env = StateTransfer(Scaled(detuning=0.25), 3, 0.5, 2.0, target=np.array([0, 1]))
    drawn = {"detuning": Normal(1.0)}
    env = ParameterRandomization(env, drawn) if inside else env
    env = ObservationModel(env, "expectations", shots)
    env = env if inside else ParameterRandomization(env, drawn)
    actions = np.full((3, 1), 1.7, np.float32)
    timesteps, _, last = player(env)(actions, KEY)
    value = float((last.inner if inside else last).data["value/detuning"])
    assert abs(value - 0.25) > 0.1
    expected = 0.25 * (1 - 2 * rabi_fidelities(actions, 0.5, value))
    error = 1e-6 if shots is None else 4 * 0.25 / shots**0.5
    np.testing.assert_allclose(timesteps.observation[:, 0], expected, atol=error)
    assert timesteps.observation[0, 0] == 0.25  # |0> is an eigenstate


class Correlated(Custom):
    """With two correlators."""

    def correlation_observables(self):
        return {"pair": rotated([1, 2, 4]), "parity": np.diag([1.0, -1.0, 1.0])}


@pytest.mark.claims("W-OM-6", "W-OM-9", "W-Q27", "W-OA-10", "W-OA-15")
@pytest.mark.parametrize("shots", [None, 9])
def test_correlations_follow_the_expectation_values(shots):
    base = StateTransfer(Correlated(), 3, 0.3, 1.0, target=basis_ket(3, 2))
    few, many = (ObservationModel(base, mode, shots) for mode in MEASURED)
    assert few.observable_names == ("spin",)
    assert many.observable_names == ("spin", "pair", "parity")
    assert many.shots_per_step == 3 * (shots or 0)
    actions = pulse(base)
    left, right = (player(env)(actions, KEY)[0].observation for env in (few, many))
    np.testing.assert_allclose(right[:, 0], left[:, 0], atol=1e-6)
    assert np.array_equal(right[:, -1], left[:, -1])
    if shots is None:
        ket = player(many)(actions, KEY)[2].base.array
        exact = [
            (ket.conj() @ o @ ket).real for o in Correlated().correlation_observables().values()
        ]
        np.testing.assert_allclose(right[-1, 1:-1], exact, atol=3e-6)
    chosen = ObservationModel(base, "correlations", shots, observables=["spin"])
    assert chosen.observable_names == many.observable_names


@pytest.mark.claims("W-OM-6", "W-OM-7", "W-Q27")
def test_correlators_of_the_dicke_battery():
    base = qenvs.make("battery/Dicke-v0", n_cells=2, horizon=3)
    ordinary, correlators = base.model.observables(), base.model.correlation_observables()
    assert set(correlators) == {"Jx2", "Jy2", "Jz2", "JxJy", "JyJz", "JzJx"}
    env = ObservationModel(base, "correlations", observables=["excitation"])
    assert env.observable_names == ("excitation", *correlators)
    timesteps, _, last = player(env)(pulse(base), KEY)
    ket = np.asarray(last.base.array, complex)
    exact = [(ket.conj() @ correlators[name] @ ket).real for name in correlators]
    np.testing.assert_allclose(timesteps.observation[-1, 1:-1], exact, atol=3e-6)
    everything = ObservationModel(base, "correlations").observable_names
    assert everything == (*ordinary, *correlators)


@pytest.mark.claims("W-OM-7", "W-OM-8")
def test_only_the_dicke_batteries_have_correlators():
    for task in qenvs.registry:
        model = qenvs.make(task).model
        assert bool(model.correlation_observables()) == type(model).__name__.startswith("Dicke")
    same = [ObservationModel(spins(), mode) for mode in MEASURED]
    assert same[0].observable_names == same[1].observable_names
    left, right = (env.reset(KEY)[1].observation for env in same)
    assert np.array_equal(left, right)


@pytest.mark.claims("W-OM-10")
def test_time_mode_shows_the_time_alone():
    for base in (spins(), Walk(), qenvs.make("transmon/XGate-v0", horizon=4)):
        env = ObservationModel(base, "time")
        assert env.observation_dim == 1
        state, timestep = env.reset(KEY)
        assert timestep.observation.tolist() == [0]
        _, timestep = jax.jit(env.step)(state, jnp.ones(env.action_dim))
        assert timestep.observation.tolist() == [np.float32(1) / np.float32(base.horizon)]
        assert set(timestep.info) == {"shots_used"}


@pytest.mark.claims("W-OM-11", "W-OM-14", "W-Q18")
@pytest.mark.parametrize("mode", PARTIAL)
def test_what_wrappers_append_stays_at_the_end(mode):
    drawn = {"detuning": Normal(0.3)}
    inside = ObservationModel(ParameterRandomization(spinless(), drawn, oracle=True), mode)
    outside = ParameterRandomization(ObservationModel(spinless(), mode), drawn, oracle=True)
    observed = []
    for env in (inside, outside):
        state, timestep = env.reset(KEY)
        observed.append(timestep.observation)
        data = (state.inner if env is inside else state).data
        assert timestep.observation.shape == (env.observation_dim,)
        assert timestep.observation[-1] == pytest.approx(data["offset/detuning"] / 0.05)
        assert timestep.observation[-2] == 0  # t/T
    assert np.array_equal(*observed)


@pytest.mark.claims("W-OM-12", "W-SH-5", "W-IB-6")
def test_no_mode_changes_dynamics_or_rewards():
    base, actions = spins(), pulse(spins())
    plain, expected, _ = player(base)(actions, KEY)
    exact = [rho[3, 3].real for rho in spin_states(actions)]
    np.testing.assert_allclose(np.cumsum(plain.reward), exact, atol=1e-6)
    for arguments in (("expectations",), ("expectations", 20), ("time",)):
        env = seen(base, *arguments)
        timesteps, x, _ = player(env)(actions, KEY)
        np.testing.assert_allclose(x, expected, atol=1e-7)
        np.testing.assert_allclose(timesteps.reward, plain.reward, atol=1e-7)
        assert np.array_equal(timesteps.done, plain.done)


@pytest.mark.claims("W-OA-14", "W-OA-23", "W-OM-13", "W-Q31")
@pytest.mark.parametrize(
    ("task", "options", "kind"),
    [
        (QUBIT, {}, "state"),
        (QUBIT, {"gamma1": 0.1}, "state"),
        ("battery/TwoLevel-v0", {}, "state"),
        ("battery/Dicke-v0", {"kappa": 0.1}, "state"),
        ("transmon/XGate-v0", {}, "propagator"),
        ("transmon/XGate-v0", {"t1_us": 20.0}, "superoperator"),
    ],
)
def test_the_kind_of_the_state_observation(task, options, kind):
    base = qenvs.make(task, **options)
    assert observation_kind(base) == observation_kind(EpisodeStatistics(base)) == kind
    assert ObservationModel(base).observation_kind == kind
    assert qenvs.wrappers.observation_kind is observation.observation_kind


# --- info ---


@pytest.mark.claims("W-IB-1", "W-IB-2", "W-OA-15", "W-OA-18", "W-Q28")
@pytest.mark.parametrize("mode", PARTIAL)
def test_info_of_the_partial_modes_holds_costs_only(mode):
    assert COST_INFO_KEYS == ("shots_used", "clip_fraction")
    options = {"observables": ["p1"]} if mode in MEASURED else {}
    for base in (qubit(), noisy_device(), EpisodeStatistics(qubit())):
        extra = {"clip_fraction"} if base is noisy_device() else set()
        for shots in (None, 30) if mode in MEASURED else (None,):
            assert info_names(ObservationModel(base, mode, shots, **options)) == {
                "shots_used",
                *extra,
            }
    outside = ControlErrors(ObservationModel(qubit(), mode, **options), Normal(5.0))
    assert info_names(outside) == set(COST_INFO_KEYS)


@pytest.mark.claims("W-IB-1", "W-IB-2")
@pytest.mark.parametrize(
    ("task", "options", "modes"),
    [
        ("battery/TwoLevel-v0", {"reward": "ergotropy", "gamma1": 0.1}, ("time",)),
        ("battery/Dicke-v0", {"n_cells": 2, "reward": "ergotropy"}, PARTIAL),
        ("transfer/LambdaSTIRAP-v0", {}, ("expectations", "time")),
        ("transmon/XGate-v0", {}, ("time",)),
    ],
)
def test_no_figure_of_merit_of_any_task_is_in_the_info(task, options, modes):
    base = qenvs.make(task, **options)
    for mode in modes:
        assert info_names(ObservationModel(base, mode)) == {"shots_used"}


@pytest.mark.claims("W-OA-15", "W-Q28", "W-SH-7")
def test_the_cost_of_an_observation_counts_every_observable():
    for arguments, cost in (
        (("expectations",), 0),
        (("expectations", 20), 4 * 20),
        (("time",), 0),
    ):
        env = seen(spins(), *arguments)
        assert env.shots_per_step == cost
        timesteps, *_ = player(env)(pulse(spins()), KEY)
        assert timesteps.info["shots_used"].tolist() == [cost] * 4
    assert ObservationModel(spins()).shots_per_step == 0


@pytest.mark.claims("W-IB-3", "W-IB-4", "W-Q30")
@pytest.mark.parametrize("mode", ["state", *PARTIAL])
def test_diagnostics_go_beside_what_the_mode_shows(mode):
    released = info_names(spins()) if mode == "state" else {"shots_used"}
    assert info_names(ObservationModel(spins(), mode)) == released
    assert info_names(ObservationModel(spins(), mode, diagnostics=True)) == {
        *released,
        "diagnostics",
    }


@pytest.mark.claims("W-IB-4", "W-IB-5", "W-Q29")
def test_exact_values_under_diagnostics_and_on_request():
    base, actions = spins(), pulse(spins())
    env = ObservationModel(base, "expectations", 20, diagnostics=True)
    states = spin_states(actions)
    timesteps, _, last = player(env)(actions, KEY)
    diagnostics = timesteps.info["diagnostics"]
    for name, operator in SPINS.items():
        exact = [np.trace(rho @ operator).real for rho in states]
        np.testing.assert_allclose(diagnostics[name], exact, atol=3e-6)
    np.testing.assert_allclose(diagnostics["fidelity"], [s[3, 3].real for s in states], atol=1e-6)
    for mode in ("state", *PARTIAL):
        plain = seen(base, mode)
        for given in (plain.info(last), plain.diagnostics(last)):
            assert given["fidelity"] == pytest.approx(states[-1][3, 3].real, abs=1e-6)
        assert set(plain.info(last)) == set(base.info(last.inner))
        assert set(plain.info(last)) | set(SPINS) <= set(plain.diagnostics(last))


# --- measure ---


@pytest.mark.claims("W-OA-16", "W-SH-11")
@pytest.mark.parametrize("dephased", [False, True], ids=["ket", "density matrix"])
def test_measure_gives_what_the_policy_sees(dephased):
    base, actions = spins(dephased), pulse(spins())
    exact = seen(base, "expectations")
    timesteps, x, _ = player(exact)(actions, KEY)
    state = base.generator.coordinates.decode(x[2])
    np.testing.assert_allclose(
        exact.measure(state, KEY, 2), timesteps.observation[2, :-1], atol=1e-6
    )


@pytest.mark.claims("W-OA-16", "W-SH-11")
def test_measure_draws_what_the_policy_sees():
    base, actions = spins(), pulse(spins())
    env = seen(base, "expectations", 20, observables=("total", "z1"))
    keys = jax.random.split(KEY, 100)
    timesteps, x, _ = players(env)(actions, keys)
    measure = jax.jit(jax.vmap(env.measure, (None, 0, None)))
    for t in (0, 2):
        again = measure(base.generator.coordinates.decode(x[0, t]), keys, t)
        assert again.shape == (100, 2)
        # rounding of a probability moves a count once in a million draws
        np.testing.assert_allclose(again, timesteps.observation[:, t, :-1], atol=2e-6)


@pytest.mark.slow
@pytest.mark.claims("W-OA-16", "W-OA-17")
def test_measure_takes_the_quantum_state_of_dynamiqs():
    env = seen(spins(), "expectations", 25)
    state, _ = env.rollout(pulse(spins()), KEY)
    left, right = env.measure(state.qstate, KEY, 1), env.measure(state.base.array, KEY, 1)
    assert np.array_equal(left, right)
    for a, b in zip(
        env.outcome_probabilities(state.qstate),
        env.outcome_probabilities(state.base.array),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, atol=1e-7)


@pytest.mark.claims("W-OA-17", "W-Q34")
@pytest.mark.parametrize("dephased", [False, True], ids=["ket", "density matrix"])
def test_outcome_probabilities_by_ascending_eigenvalue(dephased):
    rho = spin_states(pulse(spins()), dephased)[-1]
    given = rho if dephased else spin_ket(rho)
    found = seen(spins(dephased), "expectations").outcome_probabilities(given)
    assert isinstance(found, tuple)
    assert [p.shape for p in found] == [(4,), (3,), (2,), (2,)]
    diagonal = rho.diagonal().real
    np.testing.assert_allclose(
        found[1], [diagonal[3], diagonal[1] + diagonal[2], diagonal[0]], atol=1e-6
    )
    np.testing.assert_allclose(found[3], [diagonal[2:].sum(), diagonal[:2].sum()], atol=1e-6)
    up = (1 + np.trace(rho @ SPINS["xx"]).real) / 2
    np.testing.assert_allclose(found[2], [1 - up, up], atol=1e-6)
    _, vectors = np.linalg.eigh(SPINS["any"])
    np.testing.assert_allclose(
        found[0], np.einsum("im,ij,jm->m", vectors.conj(), rho, vectors).real, atol=1e-6
    )


def spin_ket(rho):
    """The ket of a pure state."""
    weights, vectors = np.linalg.eigh(rho)
    assert weights[-1] == pytest.approx(1)
    return vectors[:, -1]


# --- the contract ---


@pytest.mark.slow
@pytest.mark.parametrize("shots", [None, 40])
def test_the_contract_holds(shots):
    check_env(ObservationModel(spins(), "expectations", shots, diagnostics=True))
