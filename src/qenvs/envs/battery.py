"""Charge a battery: energy or ergotropy as the task quantity."""

from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from qenvs import _checks
from qenvs.dynamics import Generator
from qenvs.dynamics.blocks import BlockCoordinates
from qenvs.dynamics.coordinates import KetCoordinates, StateCoordinates, squared_norm
from qenvs.dynamics.reduced import reduced_form, spectrum
from qenvs.envs.base import ControlEnvironment, EnvState, state_generator
from qenvs.models.battery import Battery, BatteryModel, embed
from qenvs.observables import clip_below, passive_energy


class BatteryCharging(ControlEnvironment):
    """Energy E = Tr(rho_B H_B) or ergotropy of the battery; the reward is its gain.

    The battery is what `model.battery()` names: some tensor factors, the others traced out. The
    ergotropy is E minus the energy of the passive state of the same spectrum.

    Args:
        model, horizon, dt, action_bound, method: as for `ControlEnvironment`; the model is a
            `BatteryModel`, e.g. `HamiltonianModel.from_operators(..., battery_hamiltonian=...)`.
        reward: "energy" or "ergotropy".

    Raises:
        TypeError: a model without a battery.
        ValueError: an unknown `reward`.

    Reference: Campaioli et al., Rev. Mod. Phys. 96, 031001 (2024).
    """

    reward: str = eqx.field(default="energy", static=True, kw_only=True)

    def __check_init__(self) -> None:
        _checks.choice("reward", self.reward, ("energy", "ergotropy"))

    def build_generator(self) -> Generator:
        if not isinstance(self.model, BatteryModel):
            raise TypeError(
                f"`model` must have a battery, got {type(self.model).__name__}; give "
                "`battery_hamiltonian` to HamiltonianModel.from_operators"
            )
        self.model.battery()  # a custom model without one says so here
        return state_generator(self.model)

    def initial_object(self) -> Any:
        return self.model.initial_state()

    @property
    def quantity_name(self) -> str:
        """Name of the task quantity."""
        return self.reward

    def quantity(self, x: Array) -> Array:
        energy = self._expectations(x)["energy"]
        return energy if self.reward == "energy" else self._ergotropy(x, energy)

    def info(self, state: EnvState) -> dict[str, Array]:
        values = self._expectations(state.x)
        energy, started = values["energy"], state.t > 0
        return {
            **values,
            "ergotropy": self._ergotropy(state.x, energy),
            "power": jnp.where(started, energy / jnp.where(started, state.t, 1.0), 0.0),
            "purity": purity(self._coordinates, state.x),
        }

    @property
    def _battery(self) -> Battery:
        return cast(BatteryModel, self.model).battery()

    @property
    def _coordinates(self) -> StateCoordinates:
        return cast(StateCoordinates, self.generator.coordinates)

    def _expectations(self, x: Array) -> dict[str, Array]:
        """Energy of the battery and every other observable of the model."""
        battery, terms = self._battery, self.model.observable_terms()
        stored = embed(battery.hamiltonian, self.model.dims, battery.factors)
        terms = {**terms, "energy": (battery.scale, stored)}
        form = self._coordinates.expectation_form([matrix for _, matrix in terms.values()])
        values = self._coordinates.expectations(x, form)
        return {name: terms[name][0] * values[k] for k, name in enumerate(terms)}

    def _ergotropy(self, x: Array, energy: Array) -> Array:
        battery = self._battery
        copies = tuple(map(float, battery.copies))
        form = reduced_form(self._coordinates, battery.factors, copies)
        levels, level_copies = energy_levels(battery)
        passive = passive_energy(spectrum(form, x), form.copies, levels, level_copies)
        return clip_below(energy - battery.scale * passive)


def energy_levels(battery: Battery) -> tuple[np.ndarray, np.ndarray]:
    """Distinct energies of the battery Hamiltonian (scale 1), and how many states each has."""
    groups = [np.flatnonzero(battery.copies == number) for number in np.unique(battery.copies)]
    energies = [np.linalg.eigvalsh(battery.hamiltonian[np.ix_(g, g)]) for g in groups]
    copies = np.concatenate([battery.copies[group] for group in groups])
    levels, place = np.unique(np.concatenate(energies), return_inverse=True)
    return levels, np.bincount(place, weights=copies)


def purity(coordinates: StateCoordinates, x: Array) -> Array:
    """Tr rho^2 of the whole state, copies of blocks counted one by one."""
    if isinstance(coordinates, KetCoordinates):
        return squared_norm(x) ** 2
    if isinstance(coordinates, BlockCoordinates):
        return jnp.sum(jnp.asarray(coordinates.purity_weights, x.dtype) * x * x)
    return squared_norm(x)
