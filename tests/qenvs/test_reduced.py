"""Spectra of reduced states, straight from coordinates, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from brute_force import enable_x64, random_density
from qenvs.dynamics.blocks import BlockCoordinates
from qenvs.dynamics.coordinates import DensityCoordinates, KetCoordinates
from qenvs.dynamics.reduced import reduced_form, spectrum
from qenvs.observables import partial_trace

DIMS = (2, 3, 2)


def random_ket(rng, d):
    ket = rng.normal(size=d) + 1j * rng.normal(size=d)
    return ket / np.linalg.norm(ket)


def spectra(coordinates, state, factors):
    """The spectrum from coordinates, and by tracing out and diagonalising."""
    size = int(np.prod([coordinates.dims[k] for k in factors]))
    form = reduced_form(coordinates, factors, (1.0,) * size)
    with enable_x64():
        got = spectrum(form, jnp.asarray(np.asarray(coordinates.encode(state))))
        want = np.linalg.eigvalsh(partial_trace(state, coordinates.dims, factors))
    got = np.sort(np.concatenate([got, np.zeros(max(0, size - got.size))]))
    return got[-size:], want


@pytest.mark.parametrize("factors", [(0,), (1,), (0, 1), (2, 0), (0, 1, 2)])
@pytest.mark.parametrize("kind", ["ket", "density", "block"])
def test_spectrum_of_any_factors(kind, factors):
    rng = np.random.default_rng(0)
    if kind == "ket":
        coordinates, state = KetCoordinates(DIMS), random_ket(rng, 12)
    elif kind == "density":
        coordinates, state = DensityCoordinates(DIMS), random_density(rng, 12)
    else:
        coordinates, state = BlockCoordinates(DIMS, [(12, 1.0)]), random_density(rng, 12)
    np.testing.assert_allclose(*spectra(coordinates, state, factors), atol=1e-12)


def test_kets_are_read_on_the_side_with_the_smaller_blocks():
    whole = reduced_form(KetCoordinates((5,)), (0,), (1.0,) * 5)
    assert whole.single.shape[0] == 1
    assert not whole.larger
    large = reduced_form(KetCoordinates((6, 2)), (0,), (1.0,) * 6)
    assert large.pairs.shape[0] == 1
    assert not large.larger


def test_what_the_structure_leaves_zero_needs_no_eigenvalues():
    """|01> and |10> alone: the reduced state is diagonal."""
    coordinates = KetCoordinates((2, 2), np.array([1, 2, 5, 6]))
    form = reduced_form(coordinates, (0,), (1.0, 1.0))
    assert form.single.shape[0] == 2
    assert not form.pairs.size
    state = np.array([0, 0.6, 0.8j, 0])
    np.testing.assert_allclose(*spectra(coordinates, state, (0,)), atol=1e-12)


def test_derivatives_of_spectra_are_finite_where_they_degenerate():
    coordinates = DensityCoordinates((4,))
    form = reduced_form(coordinates, (0,), (1.0,) * 4)
    x = jnp.asarray(np.asarray(coordinates.encode(np.eye(4, dtype=complex) / 4)))
    assert np.all(np.isfinite(jax.jacfwd(lambda x: spectrum(form, x))(x)))
    assert np.all(np.isfinite(jax.jacrev(lambda x: spectrum(form, x))(x)))
