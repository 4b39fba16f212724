"""The engine: the exponential of an affine generator on a state, and dynamiqs as an alternative."""

from qenvs.dynamics.coordinates import (
    Coordinates,
    DensityCoordinates,
    KetCoordinates,
    PropagatorCoordinates,
    StateCoordinates,
    SuperoperatorCoordinates,
)
from qenvs.dynamics.exponential import Generator, build_generator, evolve, length_for

__all__ = [
    "Coordinates",
    "DensityCoordinates",
    "Generator",
    "KetCoordinates",
    "PropagatorCoordinates",
    "StateCoordinates",
    "SuperoperatorCoordinates",
    "build_generator",
    "evolve",
    "length_for",
]
