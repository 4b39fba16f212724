"""ObservationModel: which arguments are accepted, and how close operators may be."""

import numpy as np
import pytest

import qenvs
from observed import KEY, QUBIT, info_names, measured, qubit, rotated, seen, spinless, spins
from qenvs.envs.state_transfer import StateTransfer
from qenvs.models.base import basis_ket
from qenvs.wrappers import EpisodeStatistics, ObservationModel
from qenvs.wrappers.observation import DEGENERACY_RTOL, DUPLICATE_TOL, HERMITIAN_RTOL, MAX_SHOTS
from systems import Custom, Walk

PROJECTOR = np.diag([0.0, 1.0, 0.0])


NOT_HERMITIAN = PROJECTOR + np.diag([1e-3, 0], 1)
BAD = {
    "mode": (qubit, ("everything",), {}, "`observation` must be one of 'state'"),
    "zero shots": (spins, ("expectations", 0), {}, "`shots` must be >= 1"),
    "negative": (spins, ("expectations", -3), {}, "`shots` must be >= 1"),
    "fraction": (spins, ("expectations", 2.5), {}, "`shots` must be an integer"),
    "whole float": (spins, ("expectations", 5.0), {}, "`shots` must be an integer"),
    "bool": (spins, ("expectations", True), {}, "`shots` must be an integer"),
    "too many": (spins, ("expectations", 2**24 + 1), {}, r"`shots` must be <= 2\*\*24"),
    "shots of a state": (spins, ("state", 5), {}, "`shots` goes with"),
    "shots of the time": (spins, ("time", 5), {}, "`shots` goes with"),
    "names of a state": (spins, ("state",), {"observables": ["xx"]}, "`observables` goes with"),
    "names of the time": (spins, ("time",), {"observables": ["xx"]}, "`observables` goes with"),
    "gate": (
        lambda: qenvs.make("transmon/XGate-v0"),
        ("expectations",),
        {},
        "a gate task .* propagator",
    ),
    "open gate": (
        lambda: qenvs.make("transmon/XGate-v0", t1_us=20.0),
        ("correlations",),
        {},
        "a gate task .* superoperator",
    ),
    "nothing": (lambda: measured({}), ("expectations",), {}, "nothing to measure"),
    "none chosen": (spins, ("expectations",), {"observables": []}, "at least one"),
    "name": (spins, ("expectations",), {"observables": ["yy"]}, "names 'yy'; known: any, total"),
    "twice": (spins, ("expectations",), {"observables": ["xx", "xx"]}, "each observable once"),
    "not Hermitian": (
        lambda: measured({"a": NOT_HERMITIAN}),
        ("expectations",),
        {},
        "'a' must be Hermitian",
    ),
    "nan": (
        lambda: measured({"a": PROJECTOR * np.nan}),
        ("expectations",),
        {},
        "'a' must be Hermitian",
    ),
    "size": (
        lambda: measured({"a": np.eye(2)}),
        ("expectations",),
        {},
        r"'a' must have shape \(3, 3\), got \(2, 2\)",
    ),
    "duplicate": (
        qubit,
        ("expectations",),
        {},
        "'energy' and 'p1' are the same operator.*observables=\\['p1'\\].*--observables p1",
    ),
    "diagnostics": (spins, ("state", None, 1), {}, "`diagnostics` must be True or False"),
    "nested": (lambda: ObservationModel(spins()), (), {}, "inside another"),
    "deeply nested": (
        lambda: EpisodeStatistics(ObservationModel(spins())),
        ("time",),
        {},
        "inside another",
    ),
}


@pytest.mark.claims("W-OA-1", "W-OA-2", "W-OA-3", "W-OA-4", "W-OA-5", "W-OA-6", "W-OA-7", "W-OA-8")
@pytest.mark.claims("W-OA-9", "W-OA-11", "W-Q25", "W-Q32", "W-Q33")
@pytest.mark.parametrize("case", BAD)
def test_bad_arguments_are_refused_at_construction(case):
    env, args, options, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        ObservationModel(env(), *args, **options)


@pytest.mark.claims("W-OA-12")
def test_kinds_are_refused():
    with pytest.raises(TypeError, match=r"`observables` must be a sequence.*use \['xx'\]"):
        ObservationModel(spins(), "expectations", observables="xx")
    with pytest.raises(TypeError, match="Walk has no `model` with observables"):
        ObservationModel(Walk(), "expectations")
    with pytest.raises(TypeError, match="`readout` must be a ReadoutError"):
        ObservationModel(spins(), "expectations", readout={"xx": np.eye(2)})


@pytest.mark.claims("W-OA-3", "W-OA-22", "W-Q33")
def test_numbers_of_shots_that_are_accepted():
    assert MAX_SHOTS == 2**24
    for shots in (1, np.int64(5), np.uint8(9), 2**24):
        env = ObservationModel(spins(), "expectations", shots)
        assert env.shots == shots and type(env.shots) is int
    assert ObservationModel(spins(), "expectations").shots is None


@pytest.mark.claims("W-OA-9", "W-OA-10", "W-Q32")
def test_names_are_measured_in_the_order_given():
    env = ObservationModel(qubit(), "expectations", observables=("p1",))
    assert env.observable_names == ("p1",) and env.observation_dim == 2
    ordered = ObservationModel(spins(), "expectations", observables=["z1", "any"])
    assert ordered.observable_names == ("z1", "any")
    everything = seen(spins(), "expectations").reset(KEY)[1].observation
    assert np.array_equal(ordered.reset(KEY)[1].observation, everything[np.array([3, 0, 4])])
    twins = {"energy": 1, "p1": 1}
    assert set(ObservationModel(spinless(), "expectations").observable_names) == set(twins)
    for mode in ("state", "time"):
        assert ObservationModel(measured({}), mode).observable_names == ()
        assert ObservationModel(qubit(), mode).observable_names == ()


@pytest.mark.claims("W-OA-10", "W-Q31")
def test_make_passes_the_arguments_on():
    env = qenvs.make(
        QUBIT, observation="expectations", shots=3, diagnostics=True, observables=["p1"]
    )
    assert isinstance(env, ObservationModel) and env.shots_per_step == 3
    assert info_names(env) == {"shots_used", "diagnostics"}


def test_correlators_with_the_name_of_an_observable_are_refused():
    class Clash(Custom):
        def correlation_observables(self):
            return {"spin": PROJECTOR}

    base = StateTransfer(Clash(), 2, 0.3, 1.0, target=basis_ket(3, 2))
    assert ObservationModel(base, "expectations").observable_names == ("spin",)
    with pytest.raises(ValueError, match=r"names of their own, but \['spin'\]"):
        ObservationModel(base, "correlations")


# --- tolerances ---


@pytest.mark.claims("W-OA-19", "W-SH-2", "W-OA-17", "W-Q34", "W-Q35")
@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_eigenvalues_that_are_close_are_one_outcome(scale):
    assert DEGENERACY_RTOL == 1e-10
    width = 1e-10 * max(1.0, scale)
    for gap, outcomes in ((0.5 * width, 2), (2 * width, 3)):
        env = ObservationModel(measured({"a": np.diag([0, scale, scale - gap])}), "expectations")
        (probabilities,) = env.outcome_probabilities(np.array([0.6, 0.8, 0]))
        assert probabilities.shape == (outcomes,)
        above = 0.64 if outcomes == 2 else [0, 0.64]
        np.testing.assert_allclose(probabilities[1:], above, atol=1e-7)


@pytest.mark.claims("W-OA-20", "W-Q35")
def test_operators_that_are_close_are_duplicates():
    assert DUPLICATE_TOL == 1e-12
    base = rotated([1, 2, 4])
    for change, same in ((0.4e-12, True), (4e-12, False)):
        env = measured({"a": base, "b": base + change * PROJECTOR})
        if same:
            with pytest.raises(ValueError, match="'a' and 'b' are the same"):
                ObservationModel(env, "expectations")
        else:
            assert ObservationModel(env, "expectations").observable_names == ("a", "b")
    spread = np.full((3, 3), 0.5e-12)  # every entry within, but not the norm
    ObservationModel(measured({"a": base, "b": base + spread}), "expectations")


@pytest.mark.claims("W-OA-21", "W-OA-8", "W-Q35")
@pytest.mark.parametrize("scale", [0.1, 1000.0])
def test_how_far_from_hermitian_an_observable_may_be(scale):
    assert HERMITIAN_RTOL == 1e-10
    tolerance = 1e-10 * max(1.0, scale)
    for skew, accepted in ((0.5 * tolerance, True), (2 * tolerance, False)):
        env = measured({"a": scale * PROJECTOR + np.diag([skew, 0], 1)})
        if accepted:
            ObservationModel(env, "expectations")
        else:
            with pytest.raises(ValueError, match="'a' must be Hermitian"):
                ObservationModel(env, "expectations")
