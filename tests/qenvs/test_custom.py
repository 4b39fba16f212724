"""Models from operators: taken as given, errors that name the operator."""

import dynamiqs as dq
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qutip
import scipy.sparse as sp

import brute_force
import qenvs
from brute_force import LOWER, play
from qenvs.envs import StateTransfer
from qenvs.models import HamiltonianModel

X, Y, Z = np.array([[0, 1], [1, 0]]), np.array([[0, -1j], [1j, 0]]), np.diag([1.0, -1.0])
build = HamiltonianModel.from_operators


def hold(model, duration):
    """The state after one interval without control."""
    env = StateTransfer(model, 1, duration, 1.0, target=np.eye(model.dims[0])[0])
    state, info, _ = play(env, np.zeros((1, env.action_dim)))
    return np.asarray(state.array), info


def test_CM_1_matrices_are_evolved_as_given():
    model = build(X + Y, [Z], [LOWER, LOWER.T], np.full((2, 2), 0.5))
    state, info = hold(model, 0.5)
    assert state[0, 0] == pytest.approx(0.33302765, abs=1e-6)
    assert state[0, 1] == pytest.approx(0.19351309 - 0.10975224j, abs=1e-6)
    assert set(info) == {"fidelity"}


def test_CM_1_qutip_lowers_towards_index_one():
    jump = np.sqrt(0.1) * qutip.sigmam()
    model = build(
        0 * qutip.sigmaz(), [qutip.sigmax()], [jump], qutip.basis(2, 0), {"p1": np.diag([0, 1])}
    )
    _, info = hold(model, 2 * np.pi)
    assert info["p1"][-1] == pytest.approx(0.466512, abs=1e-6)


NEW_KET = qutip.tensor(qutip.basis(2, 0), qutip.basis(3, 1))
OLD_KET = qutip.Qobj(NEW_KET.full(), dims=[[2, 3], [1, 1]])


@pytest.mark.parametrize(
    ("convert", "ket"),
    [
        (np.asarray, NEW_KET.full()),
        (np.ndarray.tolist, NEW_KET.full().reshape(-1)),
        (jnp.asarray, jnp.asarray(NEW_KET.full())),
        (lambda m: qutip.Qobj(m, dims=[[2, 3], [2, 3]]), NEW_KET),
        (lambda m: qutip.Qobj(m, dims=[[2, 3], [2, 3]]), OLD_KET),
        (lambda m: dq.asqarray(m, dims=(2, 3)), dq.asqarray(NEW_KET.full(), dims=(2, 3))),
        (sp.csr_array, NEW_KET.full()),
    ],
    ids=["numpy", "lists", "jax", "qutip", "old qutip ket", "dynamiqs", "scipy sparse"],
)
def test_operators_of_every_library_make_one_model(convert, ket):
    rng = np.random.default_rng(0)
    drift, control = (np.round(a + a.T, 3) for a in rng.normal(size=(2, 6, 6)))
    jump = np.round(rng.normal(size=(6, 6)), 3)
    given = [convert(matrix.astype(np.float32)) for matrix in (drift, control, jump)]
    model = build(given[0], [given[1]], [given[2]], ket, dims=(2, 3))
    matrices = [model.drift_terms()[0][1], *model.control_operators(), model.jump_terms()[0][1]]
    for got, want in zip(matrices, (drift, control, jump), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-6)
    assert model.dims == (2, 3)
    np.testing.assert_array_equal(model.initial_state(), NEW_KET.full().reshape(-1))


def test_tensor_structure_comes_from_the_operators():
    both = qutip.tensor(qutip.sigmaz(), qutip.qeye(3))
    assert build(both, [both]).dims == (2, 3)
    assert build(both.full(), [both.full()]).dims == (6,)
    assert build(both.full(), [both.full()], dims=(3, 2)).dims == (3, 2)


def test_the_kind_of_state_follows_from_jumps_and_start():
    mixed = np.diag([0.7, 0.3])
    closed, opened = build(Z, [X]), build(Z, [X], [LOWER])
    stays = build(X, [Z], initial_state=mixed)
    assert [hold(m, 0.1)[0].shape for m in (closed, opened, stays)] == [(2,), (2, 2), (2, 2)]
    (_, want) = brute_force.trajectory(mixed, [X], [], 0.7)
    np.testing.assert_allclose(hold(stays, 0.7)[0], want, atol=1e-6)


def test_parameters_add_terms_that_can_be_replaced_and_traced():
    entry = (0.4, Z, "GHz", (0.0, 1.0), 0.1)
    model = build(X, [Y], initial_state=[1, 0], parameters={"J": entry, "free": (0.0, X)})
    assert float(model.J) == 0.4
    assert set(model.parameter_values()) == {"J", "free"}
    spec = model.parameter_specs()["J"]
    assert (spec.unit, spec.support, spec.w_ref) == ("GHz", (0.0, 1.0), 0.1)
    assert model.parameter_specs()["free"].support == (-np.inf, np.inf)
    (_, want) = brute_force.trajectory(np.diag([1, 0]), [X + 0.9 * Z], [], 0.7)
    changed = hold(model.with_parameters(J=0.9), 0.7)[0]
    np.testing.assert_allclose(np.outer(changed, changed.conj()), want, atol=1e-6)
    with pytest.raises(ValueError, match=r"`J` must lie in \[0.0, 1.0\], got 2"):
        model.with_parameters(J=2.0)
    with pytest.raises(ValueError, match="has no parameter 'K'; known: J, free"):
        model.with_parameters(K=1.0)

    @jax.jit
    @jax.vmap
    def excited(coupling):
        env = StateTransfer(model.with_parameters(J=coupling), 1, 0.7, 1.0, target=[0, 1])
        return env.rollout(jnp.zeros((1, 1)))[1].sum()

    got = excited(jnp.array([0.4, 0.9]))
    assert got[1] == pytest.approx(want[1, 1].real, abs=1e-6)


def test_models_are_equal_by_value():
    one, other = build(Z, [X]), build(Z.copy(), [X.copy()])
    assert eqx.tree_equal(one, other)
    assert not eqx.tree_equal(one, build(Z, [Y]))
    assert hash(one.structure) == hash(other.structure)


def test_a_name_that_nobody_defines_is_an_attribute_error():
    with pytest.raises(AttributeError, match="HamiltonianModel has no attribute 'gamma'"):
        _ = build(Z, [X]).gamma


TWO = qutip.tensor(qutip.sigmaz(), qutip.sigmaz())
REFUSED = {
    "CM_7 not square": ({"drift": np.ones((2, 3))}, r"`drift` must be a square .* \(2, 3\)"),
    "CM_7 not Hermitian": ({"controls": [LOWER]}, r"`controls\[0\]` must be Hermitian"),
    "CM_7 named": ({"controls": {"drive": LOWER}}, r"`controls\['drive'\]` must be Hermitian"),
    "CM_7 slightly off": ({"drift": Z + 1e-7 * LOWER}, "`drift` must be Hermitian"),
    "CM_7 NaN": ({"jump_ops": [X, np.nan * X]}, r"`jump_ops\[1\]` must be finite"),
    "CM_3 size": ({"controls": [np.eye(3)]}, r"`controls\[0\]` .* \(2, 2\) like .* \(3, 3\)"),
    "CM_3 observable": ({"observables": {"n": np.eye(3)}}, r"`observables\['n'\]` must have"),
    "CM_3 structure": (
        {"drift": TWO, "controls": [qutip.Qobj(np.eye(4))]},
        r"`controls\[0\]` has tensor structure \(4,\), but `drift` has \(2, 2\)",
    ),
    "CM_3 stated": ({"drift": TWO, "controls": [TWO], "dims": (4,)}, r"but `dims` has \(4,\)"),
    "dims": ({"dims": (3,)}, r"`dims` must multiply to the dimension 2 .* \(3,\)"),
    "no controls": ({"controls": []}, "`controls` must hold at least one operator"),
    "CM_7 norm": ({"initial_state": [1, 1]}, "`initial_state` must have norm 1, got 1.41421"),
    "CM_7 trace": ({"initial_state": np.eye(2)}, "`initial_state` must have trace 1, got 2"),
    "CM_7 negative": ({"initial_state": np.diag([1.2, -0.2])}, "must be positive, .* -0.2"),
    "CM_7 skew state": ({"initial_state": [[1, 0.1], [0, 0]]}, "must be Hermitian"),
    "bra": ({"initial_state": qutip.basis(2, 0).dag()}, r"must be a ket .* got shape \(1, 2\)"),
    "CM_6 too large": ({"drift": sp.eye_array(9000)}, "dimension 9000, dense 1.2 GiB"),
    "nominal": ({"parameters": {"J": (2.0, X, "", (0, 1))}}, r"nominal value in \(0.0, 1.0\)"),
    "reserved": ({"parameters": {"dims": (2.0, X)}}, "must be a free Python name"),
    "battery size": ({"battery_hamiltonian": np.eye(3)}, r"shape \(2, 2\), .* got \(3, 3\)"),
    "battery factor": (
        {"battery_hamiltonian": np.eye(2), "battery_subsystems": 1},
        r"different indices below 1, got \(1,\)",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_CM_3_CM_7_values_that_cannot_be_are_refused_by_name(case):
    kwargs, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        build(**{"drift": Z, "controls": [X], **kwargs})


NO_MATRIX = {
    "CM_5 QobjEvo": ({"drift": qutip.QobjEvo(lambda t: t * qutip.sigmax())}, "not depend on time"),
    "CM_5 list": ({"drift": [qutip.sigmaz(), [qutip.sigmax(), np.sin]]}, "not depend on time"),
    "CM_5 function": ({"drift": lambda t: Z}, "`drift` must not depend on time, got function"),
    "CM_5 TimeQArray": (
        {"controls": [dq.modulated(jnp.sin, dq.sigmax())]},
        r"`controls\[0\]` must not depend on time",
    ),
    "superoperator": ({"drift": qutip.to_super(qutip.sigmaz()), "controls": [np.eye(4)]}, "super"),
    "one operator": ({"controls": X}, "must be a list or mapping of operators, got ndarray"),
    "one Qobj": ({"jump_ops": qutip.sigmam()}, "must be a list or mapping of operators"),
    "text": ({"drift": "sz"}, "`drift` must be a matrix of numbers"),
    "ragged": ({"drift": [[1, 0], [0]]}, "`drift` must be a matrix of numbers"),
    "short parameter": ({"parameters": {"J": (1.0,)}}, r"must be \(nominal, operator"),
}


@pytest.mark.parametrize("case", NO_MATRIX)
def test_CM_5_what_is_no_fixed_matrix_is_refused_by_name(case):
    kwargs, message = NO_MATRIX[case]
    with pytest.raises(TypeError, match=message):
        build(**{"drift": Z, "controls": [X], **kwargs})


def test_CM_6_sparse_operators_are_converted():
    model = build(sp.csr_matrix(Z), [sp.dia_array(X)], [sp.coo_array(LOWER)])
    np.testing.assert_array_equal(model.drift_terms()[0][1], Z)
    assert isinstance(model.jump_terms()[0][1], np.ndarray)


def test_CM_7_integers_and_lists_are_numbers():
    model = build([[1, 0], [0, -1]], [[[0, 1], [1, 0]]], initial_state=[0, 1])
    assert model.drift_terms()[0][1].dtype == complex
    np.testing.assert_array_equal(model.initial_state(), [0, 1])


def test_traced_operators_are_refused():
    with pytest.raises(TypeError, match="must be a known matrix, got a traced"):
        jax.jit(lambda scale: build(scale * jnp.eye(2), [X]))(1.0)


def test_SE_2_observations_are_float32_also_in_double_precision():
    with brute_force.enable_x64():
        env = StateTransfer(build(Z, [X]), 2, 0.1, 1.0, target=[0, 1])
        _, timestep = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
    assert timestep.observation.dtype == np.float32
    assert timestep.reward.dtype == np.float64


def test_a_system_too_large_for_dense_generators_says_what_to_do():
    lowering = np.diag(np.sqrt(np.arange(1.0, 200)), 1)
    model = HamiltonianModel.from_operators(
        np.diag(np.arange(200.0)), [lowering + lowering.T], [lowering]
    )
    with pytest.raises(
        ValueError, match=r"dimension 200 with 3 terms .* 36 GiB.*keep fewer levels"
    ):
        StateTransfer(model, 4, 0.1, 1.0, target=np.eye(200)[1])


@pytest.mark.parametrize("method", ["Tsit5", 5, object()])
def test_a_method_that_is_none_of_dynamiqs_is_refused_at_once(method):
    with pytest.raises(TypeError, match=r"`method` must be None .* dynamiqs.method.Tsit5\(\)"):
        qenvs.make("qubit/StateTransfer-v0", method=method)


def driven_from_index_one(actions, jumps=()):
    """<sz> at the end of intervals of 0.1 under u X, from the state of index 1."""
    model = build(np.zeros((2, 2)), [X], jumps, initial_state=[0, 1])
    env = StateTransfer(model, len(actions), 0.1, 10.0, target=[1, 0])
    _, info, _ = play(env, np.reshape(actions, (-1, 1)))
    return 2 * info["fidelity"] - 1


def test_PH_2_a_short_pulse_in_the_middle_of_an_episode_is_not_missed():
    actions = np.zeros(20)
    actions[10] = -10.0
    assert driven_from_index_one(actions)[-1] == pytest.approx(0.4161468, abs=1e-6)  # -cos 2


def test_PH_6_the_population_falls_to_1_over_e_at_t1():
    t1 = 2.0
    decay = np.array([[0, 1], [0, 0]]) / np.sqrt(t1)
    excited = (1 - driven_from_index_one(np.zeros(20), [decay])) / 2
    assert excited[-1] == pytest.approx(0.367879, abs=1e-6)
