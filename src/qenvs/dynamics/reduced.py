"""The spectrum of some tensor factors of a state, straight from its coordinates.

Which entries of the reduced density matrix can be nonzero is a structural fact. They split it
into blocks: an eigenvalue in a block of one is a linear (kets: quadratic) form of the coordinates,
in a block of two a closed form. So a Dicke battery in the rotating-wave approximation, whose
reduced state is always diagonal, needs no eigendecomposition at all.
"""

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.sparse.csgraph import connected_components

from qenvs.dynamics.blocks import BlockCoordinates
from qenvs.dynamics.coordinates import (
    KetCoordinates,
    StateCoordinates,
    apply_known,
    hermitian_basis,
)
from qenvs.observables import eigenvalues, pair_eigenvalues

SIZE_CLASSES = (lambda size: size == 1, lambda size: size == 2, lambda size: size > 2)


class Entries(NamedTuple):
    """Entries rho_ij of a whole or reduced state as sums of weight * feature.

    Attributes:
        row, column, feature, weight: one term each, shape (n,).
        products: (2, m) coordinates whose products are the features; None if the features are
            the coordinates themselves.
    """

    row: np.ndarray
    column: np.ndarray
    feature: np.ndarray
    weight: np.ndarray
    products: np.ndarray | None


class ReducedForm(NamedTuple):
    """What `spectrum` needs.

    Attributes:
        products: as for `Entries`.
        single: (n, features) rows of the eigenvalues in blocks of one.
        pairs: (n, 4, features) rows of rho_aa, rho_bb, Re rho_ab, Im rho_ab in blocks of two.
        larger: (2, s, s, features) real and imaginary parts of each larger block.
        copies: number of copies of each eigenvalue, in this order.
    """

    products: np.ndarray | None
    single: np.ndarray
    pairs: np.ndarray
    larger: tuple[np.ndarray, ...]
    copies: np.ndarray


def spectrum(form: ReducedForm, x: Array) -> Array:
    """Eigenvalues of the reduced state that can be nonzero, in the order of `form.copies`."""
    features = x if form.products is None else x[form.products[0]] * x[form.products[1]]
    values = []
    if form.single.size:
        values.append(apply_known(form.single, features))
    if form.pairs.size:
        n = form.pairs.shape[0]
        by_part = form.pairs.transpose(1, 0, 2).reshape(4 * n, -1)
        parts = apply_known(by_part, features).reshape(4, n)
        values.append(pair_eigenvalues(*parts).reshape(-1))
    for rows in form.larger:
        size = rows.shape[1]
        re, im = apply_known(rows.reshape(2 * size * size, -1), features).reshape(2, size, size)
        values.append(eigenvalues(re + 1j * im))
    return jnp.concatenate(values)


@functools.lru_cache(maxsize=64)
def reduced_form(
    coordinates: StateCoordinates, factors: tuple[int, ...], copies: tuple[float, ...]
) -> ReducedForm:
    """How the spectrum of the tensor factors `factors` follows from coordinates.

    Args:
        coordinates: of a ket or density matrix.
        factors: indices of the factors that stay.
        copies: number of copies of each of their basis states.
    """
    kept, traced = _split_index(coordinates.dims, factors)
    if not isinstance(coordinates, KetCoordinates):
        entries = _density_entries(coordinates, kept, traced)
        return _form(entries, coordinates.size, np.array(copies))
    # both halves of a pure state have the same spectrum: take the one with the smaller blocks
    halves = [(kept, traced), (traced, kept)]
    forms = [_ket_form(coordinates, *half) for half in halves]
    return min(forms, key=lambda form: sum(rows.shape[1] ** 3 for rows in form.larger))


def _split_index(dims: Sequence[int], factors: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Index of every basis state on the kept factors, and on the others."""
    digits = np.unravel_index(np.arange(math.prod(dims)), dims)
    rest = [k for k in range(len(dims)) if k not in factors]

    def index(group: Sequence[int]) -> np.ndarray:
        if not group:
            return np.zeros(math.prod(dims), int)
        return np.ravel_multi_index([digits[k] for k in group], [dims[k] for k in group])

    return index(factors), index(rest)


def _ket_form(coordinates: KetCoordinates, kept: np.ndarray, traced: np.ndarray) -> ReducedForm:
    """From rho_ab = sum_e psi_ae psi_be*."""
    place = coordinates.support % coordinates.dimension
    factor = np.where(coordinates.support >= coordinates.dimension, 1j, 1.0)
    first, second = np.nonzero(traced[place][:, None] == traced[place])
    useful = (place[first] != place[second]) | (first == second)
    first, second = first[useful], second[useful]
    products = np.stack([np.minimum(first, second), np.maximum(first, second)])
    products, feature = np.unique(products, axis=1, return_inverse=True)
    weight = factor[first] * factor[second].conj()
    row, column = kept[place[first]], kept[place[second]]
    entries = Entries(row, column, feature.reshape(-1), weight, products)
    return _form(entries, products.shape[1], np.ones(kept.max() + 1))


def _density_entries(
    coordinates: StateCoordinates, kept: np.ndarray, traced: np.ndarray
) -> Entries:
    """rho_ab = sum_e rho_(ae)(be)."""
    d = coordinates.dimension
    if isinstance(coordinates, BlockCoordinates):
        codes, basis = coordinates.entry_basis
        terms = basis.tocoo()
        i, j = codes[terms.row] // d, codes[terms.row] % d
    else:
        terms = hermitian_basis(d)[:, coordinates.support].tocoo()
        i, j = terms.row % d, terms.row // d
    same = traced[i] == traced[j]
    return Entries(kept[i][same], kept[j][same], terms.col[same], terms.data[same], None)


def _form(entries: Entries, features: int, copies: np.ndarray) -> ReducedForm:
    links = np.zeros((copies.size, copies.size))
    links[entries.row, entries.column] = 1.0
    labels = connected_components(links, directed=False)[1]
    present = np.unique(entries.row)
    groups = [present[labels[present] == label] for label in np.unique(labels[present])]
    single, pairs, larger = ([g for g in groups if test(g.size)] for test in SIZE_CLASSES)
    # `spectrum` gives the lower eigenvalue of every pair, then the upper one of every pair
    ordered = [*(g[:1] for g in single), *(g[:1] for g in pairs * 2), *larger]
    rows = {g[0]: _rows(entries, g, features) for g in groups}
    by_pair = [rows[g[0]] for g in pairs]
    return ReducedForm(
        entries.products,
        np.reshape([rows[g[0]][0, 0, 0] for g in single], (-1, features)),
        np.reshape(
            [[r[0, 0, 0], r[0, 1, 1], r[0, 0, 1], r[1, 0, 1]] for r in by_pair], (-1, 4, features)
        ),
        tuple(rows[g[0]] for g in larger),
        np.concatenate([copies[g] for g in ordered]),
    )


def _rows(entries: Entries, group: np.ndarray, n_features: int) -> np.ndarray:
    """Real and imaginary parts of one block as rows over the features, (2, s, s, features)."""
    inside = np.isin(entries.row, group) & np.isin(entries.column, group)
    at = np.searchsorted(group, entries.row[inside]), np.searchsorted(group, entries.column[inside])
    shape = (group.size, group.size, n_features)
    block: np.ndarray = np.zeros(shape, complex)
    np.add.at(block, (*at, entries.feature[inside]), entries.weight[inside])
    return np.stack([np.real(block), np.imag(block)])
