"""Block coordinates against dense Liouvillians, and collective spins against single cells."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.linalg import block_diag, expm

from brute_force import LOWER, SIGMA_Z, cell_sum, liouvillian, on_cell, random_density
from qenvs.dynamics.blocks import BlockCoordinates, build_block_generator
from qenvs.dynamics.coordinates import DensityCoordinates
from qenvs.models.spin import local_jumps, magnetic, sectors, spin_lowering, spin_z
from systems import random_hermitian

BLOCKS = ((3, 1.0), (2, 4.0))


def block_state(rng):
    return block_diag(0.7 * random_density(rng, 3), 0.3 * random_density(rng, 2))


def test_generators_move_every_entry_as_the_dense_liouvillian():
    rng = np.random.default_rng(0)
    hamiltonian = block_diag(random_hermitian(rng, 3), random_hermitian(rng, 2))
    down, up = np.zeros((5, 5), complex), np.zeros((5, 5), complex)
    down[3:, :3] = rng.normal(size=(2, 3)) + 1j * rng.normal(size=(2, 3))
    up[:3, 3:] = rng.normal(size=(3, 2))
    inside = block_diag(rng.normal(size=(3, 3)), 1j * rng.normal(size=(2, 2)))
    rho, jumps = block_state(rng), [down, up, inside]
    generator = build_block_generator((5,), BLOCKS, [hamiltonian], jumps, rho)
    coordinates = generator.coordinates
    assert coordinates.size == coordinates.full_size == 13
    moved = expm(generator.operators.sum(axis=0)) @ coordinates.encode(rho)
    want = (expm(liouvillian(hamiltonian, jumps)) @ rho.reshape(-1)).reshape(5, 5)
    np.testing.assert_allclose(coordinates.decode(jnp.asarray(moved)), want, atol=1e-6)
    assert coordinates.trace_form @ moved == pytest.approx(1, abs=1e-12)


def test_one_block_is_a_density_matrix():
    rng = np.random.default_rng(1)
    rho = random_density(rng, 4)
    blocks, plain = BlockCoordinates((2, 2), [(4, 1.0)]), DensityCoordinates((2, 2))
    x, y = blocks.encode(rho), plain.encode(rho)
    assert blocks.full_size == plain.full_size == 16
    assert np.sum(x**2) == pytest.approx(np.trace(rho @ rho).real)
    np.testing.assert_allclose(blocks.decode(jnp.asarray(x)), rho, atol=1e-6)
    seen = [c.real_and_imaginary(jnp.asarray(v)) for c, v in ((blocks, x), (plain, y))]
    np.testing.assert_allclose(*seen, atol=1e-6)
    operator = random_hermitian(rng, 4)
    value = blocks.expectations(jnp.asarray(x), blocks.expectation_form([operator]))
    assert value[0] == pytest.approx(np.trace(rho @ operator).real, abs=1e-6)
    ket = np.array([1, 1j, 0, 0]) / np.sqrt(2)
    fidelity = (ket.conj() @ rho @ ket).real
    assert blocks.fidelity(jnp.asarray(x), ket) == pytest.approx(fidelity, abs=1e-6)


def test_observed_are_real_then_imaginary_parts_of_the_blocks():
    rng = np.random.default_rng(2)
    rho = block_state(rng)
    coordinates = BlockCoordinates((5,), BLOCKS)
    flat = np.concatenate([rho[:3, :3].reshape(-1), rho[3:, 3:].reshape(-1)])
    seen = coordinates.real_and_imaginary(jnp.asarray(coordinates.encode(rho)))
    np.testing.assert_allclose(seen, np.concatenate([flat.real, flat.imag]), atol=1e-6)


def test_purity_counts_the_copies():
    rho = block_state(np.random.default_rng(3))
    coordinates = BlockCoordinates((5,), BLOCKS)
    full = block_diag(rho[:3, :3], *[rho[3:, 3:] / 4] * 4)
    x = coordinates.encode(rho)
    assert coordinates.purity_weights @ x**2 == pytest.approx(np.trace(full @ full).real)


def test_only_what_the_start_reaches_is_kept():
    """A photon exchanged between two levels: entries between excitation numbers stay zero."""
    exchange = np.zeros((4, 4))
    exchange[1, 2] = exchange[2, 1] = 1.0
    loss = np.kron(np.eye(2), LOWER)
    start = np.eye(4, dtype=complex)[1]
    generator = build_block_generator((2, 2), [(4, 1.0)], [exchange], [loss], start)
    assert generator.coordinates.size == 4  # ground, both populations, one part of the coherence


def compact(state, isometries):
    """Total weight of the copies of each block."""
    return block_diag(*(sum(v.T @ state @ v for v in copies) for copies in isometries))


def spin_isometries(n_cells):
    """For each sector the bases |j, m>, m ascending, of all its copies in the 2^N space."""
    lowering, z = cell_sum(LOWER.real, n_cells), -cell_sum(SIGMA_Z, n_cells) / 2
    found = []
    for sector in sectors(n_cells):
        condition = np.vstack([lowering, z + sector.j * np.eye(2**n_cells)])
        _, singular, rows = np.linalg.svd(condition)
        lowest = rows[np.sum(singular > 1e-9) :]
        assert len(lowest) == sector.copies
        found.append([_ladder(v, lowering.T, sector.j) for v in lowest])
    return found


def _ladder(lowest, raising, j):
    columns = [lowest]
    for m in magnetic(j)[:-1]:
        columns.append(raising @ columns[-1] / np.sqrt((j - m) * (j + m + 1)))
    return np.array(columns).T


@pytest.mark.parametrize("n_cells", [1, 2, 3, 4, 5])
def test_compact_blocks_hold_the_sums_over_cells(n_cells):
    isometries, kept = spin_isometries(n_cells), sectors(n_cells)
    assert sum(sector.size * sector.copies for sector in kept) == 2**n_cells
    rng = np.random.default_rng(n_cells)
    blocks = [rng.normal(size=(sector.size, sector.size)) for sector in kept]
    full = sum(
        v @ (block / len(copies)) @ v.T
        for block, copies in zip(blocks, isometries, strict=True)
        for v in copies
    )
    rho = block_diag(*blocks)
    np.testing.assert_allclose(compact(full, isometries), rho, atol=1e-12)
    lowering = cell_sum(LOWER.real, n_cells)
    moved = spin_lowering(kept) @ rho @ spin_lowering(kept).T
    np.testing.assert_allclose(compact(lowering @ full @ lowering.T, isometries), moved, atol=1e-11)
    z = compact(-cell_sum(SIGMA_Z, n_cells) / 2 @ full, isometries)
    np.testing.assert_allclose(z, spin_z(kept) @ rho, atol=1e-12)
    kinds = {"emission": LOWER.real, "pumping": LOWER.real.T, "dephasing": SIGMA_Z / 2}
    for kind, single in kinds.items():
        cells = [on_cell(single, k, n_cells) for k in range(n_cells)]
        want = compact(sum(s @ full @ s.T for s in cells), isometries)
        got = sum(jump @ rho @ jump.T for jump in local_jumps(n_cells, kind))
        np.testing.assert_allclose(got, want, atol=1e-11, err_msg=kind)
        loss = sum(jump.T @ jump for jump in local_jumps(n_cells, kind)) @ rho
        want = compact(sum(s.T @ s for s in cells) @ full, isometries)
        np.testing.assert_allclose(loss, want, atol=1e-11, err_msg=kind)
