"""The checks of `qenvs validate`, one test each, and what they find when the physics is broken."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qutip

import qenvs.envs.base as engine
from qenvs import cli, validation
from qenvs.envs import StateTransfer
from qenvs.models import (
    DickeBattery,
    HamiltonianModel,
    LambdaSystem,
    QubitBattery,
    Transmon,
    TwoLevel,
    TwoTransmon,
)
from qenvs.validation import (
    conservation,
    convergence,
    environments,
    evolution,
    gradients,
    own,
    parameters,
    solvers,
    suite,
    thermodynamics,
    transformations,
)
from qenvs.validation.cases import built_in_cases
from qenvs.validation.comparison import comparison
from qenvs.validation.results import Check, Measure

CHECKS = validation.built_in_checks()
SLOW = {
    # kinds of checks that compile for half a minute
    *("gradients", "transformations", "convergence"),
    # variants of models that have another case
    *("Transmon SX, 4 levels", "Transmon X open", "TwoTransmon open", "DickeBattery open"),
    *("DickeBattery without RWA", "DickeBatteryLocal pumped"),
}


def parameter(check):
    slow = {check.category, check.model} & SLOW
    return pytest.param(check, id=check.id, marks=[pytest.mark.slow] * bool(slow))


@pytest.mark.parametrize("check", [parameter(check) for check in CHECKS])
def test_physics(check):
    result = check.run()
    assert result.passed, result


def test_there_are_enough_checks_of_everything():
    assert len(CHECKS) >= 100
    assert len({check.id for check in CHECKS}) == len(CHECKS)
    own_categories = {"structure", "reference"}
    assert {c.category for c in CHECKS} == set(validation.CATEGORIES) - own_categories
    models = " ".join(check.model for check in CHECKS)
    for kind in "TwoLevel QubitBattery LambdaSystem Transmon TwoTransmon DickeBattery".split():
        assert kind in models
    assert {"DickeBatteryLocal", "HamiltonianModel", "gates"} <= {c.model for c in CHECKS}


# --- what a check says ---


def run(measure):
    return Check("name", "Model", "structure", measure).run()


def test_an_error_within_the_tolerance_passes():
    assert run(lambda: Measure(1e-3, 1e-2)).passed
    assert run(lambda: Measure(1e-3, 1e-2)).ratio == pytest.approx(0.1)
    assert run(lambda: Measure(0, 0)).ratio == 0


@pytest.mark.parametrize("error", [1.0, np.inf, np.nan])
def test_anything_else_fails(error):
    assert not run(lambda: Measure(error, 0.5)).passed


def test_an_exception_fails_with_its_message():
    result = run(lambda: 1 / 0)
    assert not result.passed
    assert result.detail == "ZeroDivisionError: division by zero"
    assert np.isinf(result.ratio)


@pytest.mark.parametrize("value", [False, True])
def test_checks_compute_in_float64_and_leave_the_setting(value):
    def measure():
        return Measure(float(jnp.ones(()).dtype != jnp.float64), 0)

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", value)
    try:
        assert run(measure).passed
        assert jax.config.jax_enable_x64 is value
    finally:
        jax.config.update("jax_enable_x64", before)


# --- broken physics ---


def results(kind, label, name=""):
    cases = {label: built_in_cases()[label]}
    return [c.run() for c in kind(cases) if c.model.startswith(label.split()[0]) and name in c.name]


def assert_red(kind, label, name=""):
    found = results(kind, label, name)
    assert found and not all(result.passed for result in found), found


def test_red_closed_forms(monkeypatch):
    monkeypatch.setattr(
        TwoLevel, "control_operators", lambda self: (np.array([[0, 1.1], [1.1, 0]]),)
    )
    (rabi,) = (c for c in CHECKS if c.name.startswith("resonant Rabi"))
    assert not rabi.run().passed


def swapped(operators):
    return lambda self: operators(self)[::-1]


@pytest.mark.parametrize("kind", [evolution.checks, solvers.integrated])
def test_red_brute_force_and_qutip(monkeypatch, kind):
    changed = swapped(LambdaSystem.control_operators)
    monkeypatch.setattr(LambdaSystem, "control_operators", changed)
    assert_red(kind, "LambdaSystem")


def test_red_conservation(monkeypatch):
    loss = np.diag([0, -0.2j, 0])
    monkeypatch.setattr(LambdaSystem, "drift_terms", lambda self: ((1.0, loss),))
    assert_red(conservation.checks, "LambdaSystem", "trace is 1")


def test_red_thermodynamics(monkeypatch):
    lower = np.array([[0, 1], [0, 0]], complex)

    def jump_terms(self):  # absorption and emission exchanged: the bath inverts the qubit
        n = self.n_th
        return ((self.gamma1 * n, lower), (self.gamma1 * (n + 1), lower.T))

    monkeypatch.setattr(QubitBattery, "jump_terms", jump_terms)
    found = results(thermodynamics.checks, "QubitBattery open", "the Gibbs state is")
    assert len(found) == 2 and not any(result.passed for result in found), found


@pytest.mark.slow
def test_red_convergence(monkeypatch):
    exact = engine.evolve

    def inexact(generator, coefficients, x, dt, length):
        return exact(generator, coefficients, x, dt * (1 + 1e-6 * dt), length)

    monkeypatch.setattr(engine, "evolve", inexact)
    assert_red(convergence.checks, "TwoLevel", "three steps of")


def test_red_environment(monkeypatch):
    quantity = StateTransfer.quantity
    monkeypatch.setattr(StateTransfer, "quantity", lambda self, x: 0.9 * quantity(self, x))
    assert_red(environments.checks, "TwoLevel", "quantities")


@pytest.mark.slow
def test_red_gradients(monkeypatch):
    quantity = StateTransfer.quantity
    stopped = lambda self, x: quantity(self, jax.lax.stop_gradient(x))  # noqa: E731
    monkeypatch.setattr(StateTransfer, "quantity", stopped)
    assert_red(gradients.checks, "TwoLevel", "gradient of the return")


@pytest.mark.slow
def test_red_transformations(monkeypatch):
    quantity = StateTransfer.quantity

    def fickle(self, x):
        return quantity(self, x) + (0.0 if isinstance(x, jax.core.Tracer) else 1e-3)

    monkeypatch.setattr(StateTransfer, "quantity", fickle)
    assert_red(transformations.checks, "TwoLevel", "jit = eager")


@pytest.mark.parametrize(
    ("attribute", "value", "name"),
    [
        ("drift_terms", lambda self: ((1.0, np.diag([0.5, -0.5])),), "detuning: replaced"),
        ("check_parameters", lambda self, **values: None, "refused"),
        ("parameter_values", lambda self: {"detuning": np.nan}, "values lie"),
    ],
)
def test_red_parameters(monkeypatch, attribute, value, name):
    monkeypatch.setattr(TwoLevel, attribute, value)
    assert_red(parameters.checks, "TwoLevel", name)


class Skew(TwoLevel):
    def control_operators(self):
        return (np.array([[0, 1], [0, 0]]),)


def test_red_structure():
    found = {c.name: c.run() for c in own.structure(Skew())}
    failed = [name for name, result in found.items() if not result.passed]
    assert failed == ["Hamiltonian terms are Hermitian"]
    assert found[failed[0]].detail == "control 0"


# --- a user's model and its reference ---


class Sign(Transmon):
    def drift_terms(self):
        detuning, (alpha, kerr) = super().drift_terms()
        return detuning, (alpha, -kerr)


class Swapped(TwoTransmon):
    def control_operators(self):
        a, b, c, d = super().control_operators()
        return a, d, c, b


class Conjugated(Transmon):
    def jump_terms(self):
        (rate, lower), dephasing = super().jump_terms()
        return ((rate, lower.conj().T), dephasing)


class Rephased(Transmon):
    def jump_terms(self):
        (rate, lower), dephasing = super().jump_terms()
        return dephasing, (rate, 1j * lower)


OPEN = {"t1_us": 50.0, "t2_us": 30.0}


def differences(model, reference):
    found = [check.run() for check in comparison(model, reference)]
    return {r.name: r.detail for r in found if not r.passed}


def test_a_model_agrees_with_itself():
    assert differences(Transmon(**OPEN), Transmon(**OPEN)) == {}


def test_a_wrong_sign_is_named():
    found = differences(Sign(), Transmon())
    assert found["drift"] == "wrong sign of drift term 1"
    assert "equation of motion at random controls" in found
    assert not any(name.startswith(("control", "jump")) for name in found)


def from_matrices(sign=1.0, coupling=0.1, decay=0.2):
    """A transmon of three levels as one drift matrix, its ladder coupled as by a stray field."""
    a = np.diag(np.sqrt([1.0, 2.0]), k=1)
    n = a.T @ a
    drift = 0.3 * n - sign * np.pi * 0.34 * n @ (n - np.eye(3)) + coupling * (a + a.T)
    drives = [(a + a.T) / 2, 1j * (a.T - a) / 2]
    return HamiltonianModel.from_operators(drift, drives, [decay * a] if decay else [])


def test_a_wrong_sign_within_one_matrix_is_named():
    ours = from_matrices(-1, coupling=0, decay=0)
    found = differences(ours, Transmon(detuning_ghz=0.3 / (2 * np.pi)))
    assert found["drift"] == "drift term 1 of the reference: wrong sign"
    found = differences(from_matrices(coupling=-0.1), from_matrices())
    assert found["drift"] == "wrong sign of the entries (0, 1), (1, 0), (1, 2), (2, 1)"
    found = differences(from_matrices(-1), from_matrices())
    assert found["drift"] == (
        "entry (2, 2) is 2.73628, the reference has -1.53628 (energies from level 0)"
    )


def test_a_wrong_sign_of_a_term_that_is_zero_at_first_is_found():
    class Detuned(TwoLevel):
        def drift_terms(self):
            ((detuning, z),) = super().drift_terms()
            return ((-detuning, z),)

    found = differences(Detuned(), TwoLevel())
    assert found == {"drift with another detuning": "wrong sign of drift term 0"}


def test_a_swapped_control_is_named():
    found = differences(Swapped(), TwoTransmon())
    assert found["control 1 (control_q)"] == (
        "swapped controls 1 and 3: control 1 (control_q) is control 3 (target_q) of the reference"
    )
    assert found["control 3 (target_q)"].startswith("swapped controls 3 and 1")
    assert "drift" not in found


def test_a_conjugated_jump_is_named():
    found = differences(Conjugated(**OPEN), Transmon(**OPEN))
    assert found["jump 0"] == "conjugated jump operator: the adjoint of jump 0 of the reference"
    assert found["every jump of the reference"] == "no partner of jump 0 of the reference"
    assert "drift" not in found and "jump 1" not in found


def test_a_conjugated_jump_is_found_while_it_is_switched_off():
    assert "the adjoint of jump 0" in differences(Conjugated(), Transmon())["jump 0"]


def test_phase_and_order_of_jumps_do_not_matter():
    assert differences(Rephased(**OPEN), Transmon(**OPEN)) == {}


def test_factors_are_named():
    class Hertz(Transmon):
        def drift_terms(self):
            return tuple((w / (2 * np.pi), m) for w, m in super().drift_terms())

    assert differences(Hertz(), Transmon())["drift"] == (
        "drift term 1 is 1/(2 pi) times the reference"
    )
    rates = differences(TwoLevel(gamma1=0.4), TwoLevel(gamma1=0.2))
    assert rates["jump 0"] == "jump 0 otherwise, its rate is 2 times the reference"


def test_a_basis_in_the_reverse_order_is_named():
    flipped = HamiltonianModel.from_operators(
        -0.3 * qutip.sigmaz(), [qutip.sigmax() / 2], [0.4 * qutip.sigmam()], qutip.basis(2, 1)
    )
    ours = HamiltonianModel.from_operators(
        0.3 * qutip.sigmaz(), [qutip.sigmax() / 2], [0.4 * qutip.sigmap()], qutip.basis(2, 0)
    )
    found = differences(flipped, ours)
    assert "adjoint" in found["jump 0"]
    assert found["drift"] == "wrong sign of drift term 0"


def hamiltonian(u):
    a = np.diag(np.sqrt([1.0, 2.0]), k=1)
    n = a.T @ a
    return np.pi * -0.34 * n @ (n - np.eye(3)) + u[0] * (a + a.T) / 2 + u[1] * 1j * (a.T - a) / 2


def test_a_reference_may_be_a_function():
    assert differences(Transmon(), hamiltonian) == {}
    found = differences(Transmon(), lambda u: hamiltonian([u[0], -u[1]]))
    assert found["control 1 (omega_q)"] == "wrong sign"
    squared = differences(Transmon(), lambda u: hamiltonian(np.square(u)))
    assert list(squared) == ["reference is affine in the controls"]


@pytest.mark.parametrize(
    ("value", "message"), [(0.0, "must give a square matrix"), (1 / 2, "raised ZeroDivisionError")]
)
def test_a_function_that_gives_no_hamiltonian_is_refused(value, message):
    with pytest.raises(ValueError, match=message):
        list(comparison(TwoLevel(), lambda u: value and value / 0))


def test_models_of_different_size_say_so():
    assert differences(Transmon(4), Transmon(3)) == {
        "size": "the dimension is 4, the reference has 3"
    }


def test_kinds_that_are_no_model_are_refused():
    with pytest.raises(TypeError, match="must be a qenvs"):
        validation.validate(np.eye(2))
    with pytest.raises(TypeError, match="the reference must be"):
        suite.validate(TwoLevel(), reference=3)
    with pytest.raises(ValueError, match="needs a `model`"):
        validation.validate(reference=TwoLevel())


@pytest.mark.slow
@pytest.mark.parametrize("model", [Transmon(**OPEN), DickeBattery(2, kappa=0.1), from_matrices()])
def test_a_sound_model_passes_as_a_users(model):
    failed = [result for result in validation.validate(model, model) if not result.passed]
    assert failed == []


# --- the command ---


@pytest.fixture
def validate(capsys, monkeypatch, tmp_path):
    """Runs `qenvs validate` on two quick checks, or without those that compile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(own, "DYNAMIC", ())
    monkeypatch.setattr(own, "has_battery", lambda model: False)
    quick = [c for c in CHECKS if c.model == "gates"][:2]
    monkeypatch.setattr(validation, "built_in_checks", lambda: quick)

    def call(*words):
        code = cli.run(["validate", *words])
        return code, *capsys.readouterr()

    return call


def test_the_table_groups_by_category(validate):
    code, out, err = validate("-q")
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split() == "category passed error/tolerance worst check".split()
    assert "closed forms  2/2" in out and "every check passed" in out


def test_progress_goes_to_standard_error(validate):
    code, out, err = validate("--json")
    assert code == 0 and "validate: 100 %" in err
    record = json.loads(out)
    assert (record["ok"], record["checks"], record["passed"]) == (True, 2, 2)
    assert set(record["results"][0]) == {
        "name", "model", "category", "error", "tolerance", "passed", "detail", "ratio",
    }  # fmt: skip


def test_markdown(validate):
    code, out, _ = validate("--markdown", "-q")
    assert code == 0
    assert "| category | model | check | error | tolerance | passed |" in out
    assert out.count("| closed forms | gates |") == 2


FAULTY = """
from qenvs.models import TwoLevel
class Mine(TwoLevel):
    def control_operators(self):
        return (-super().control_operators()[0],)
good = TwoLevel()
def with_arguments(a, b): ...
def fails(): raise RuntimeError("no device file")
not_a_model = 3
"""


def test_a_failed_check_is_exit_code_1_and_is_named(validate, tmp_path):
    (tmp_path / "my_models.py").write_text(FAULTY)
    code, out, _ = validate("--model", "my_models:Mine", "--reference", "my_models:good", "-q")
    assert code == 1
    assert "reference, Mine: control 0 (u)" in out and "wrong sign" in out
    code, out, _ = validate("--model", "my_models:good", "--json", "-q")
    assert code == 0 and json.loads(out)["ok"]
    code, out, _ = validate(
        "--model", "my_models:Mine", "--reference", "my_models:good", "--json", "-q"
    )
    assert code == 1 and not json.loads(out)["ok"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "my_models:Mien"], "did you mean 'Mine'?"),
        (["--model", "my_model:Mine"], "there is no module 'my_model'; did you mean 'my_models'?"),
        (["--model", "qenvs.modles:TwoLevel"], "'qenvs.modles'; did you mean 'models'"),
        (["--model", "my_models"], "must read pkg.mod:ATTR"),
        (["--model", "./my_models.py:good"], "from the folder of that file it is my_models:good"),
        (["--model", "my_models:fails"], "'my_models:fails' raised RuntimeError: no device file"),
        (["--model", "my_models:with_arguments"], "it needs a, b"),
        (["--model", "my_models:not_a_model"], "got int"),
        (["--model", "broken:Mine"], "'broken' fails to import: SyntaxError"),
        (["--model", "lonely:Mine"], "'lonely' needs 'no_such_package', not installed"),
        (["--reference", "my_models:good"], "--reference needs --model"),
        (["--json", "--markdown"], "not both"),
    ],
)
def test_what_cannot_be_imported_is_exit_code_2(validate, tmp_path, words, message):
    (tmp_path / "my_models.py").write_text(FAULTY)
    (tmp_path / "broken.py").write_text("def (")
    (tmp_path / "lonely.py").write_text("import no_such_package")
    code, _, err = validate(*words)
    assert code == 2
    assert message in err


def test_a_model_in_a_package_by_a_dotted_attribute(validate):
    code, out, _ = validate("--model", "qenvs.models:two_level.TwoLevel", "-q")
    assert code == 0 and "every check passed" in out
