"""Steady flow in a square whose lid slides: stream function and vorticity, finite differences, Newton.

Δψ + ω = 0,   ψ_y ω_x − ψ_x ω_y = Δω / Re,   u = ψ_y,   v = −ψ_x
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from dcnn.pde.solution import Array


def solve_cavity(reynolds: float, cells: int = 128, tolerance: float = 1e-10) -> tuple[Array, Array, Array]:
    """Grid points x (= y) and the velocities u, v on [x, y]; the lid y = 1 moves at u = 1."""
    n, h = cells + 1, 1.0 / cells
    x = np.linspace(0, 1, n)
    inner = np.zeros((n, n), dtype=bool)
    inner[1:-1, 1:-1] = True
    inside = sparse.diags(inner.ravel().astype(float))
    identity, one = sparse.identity(n), np.ones(n - 1)
    first = sparse.diags([-one, one], [-1, 1]) / (2 * h)
    second = sparse.diags([one, -2 * np.ones(n), one], [-1, 0, 1]) / h**2
    d_x, d_y = inside @ sparse.kron(first, identity), inside @ sparse.kron(identity, first)
    laplace = inside @ (sparse.kron(second, identity) + sparse.kron(identity, second))
    wall, lid = _wall_vorticity(n, h)
    walls = sparse.identity(n * n) - inside

    psi, omega = np.zeros(n * n), np.zeros(n * n)
    for _ in range(50):
        u, v = d_y @ psi, -(d_x @ psi)
        omega_x, omega_y = d_x @ omega, d_y @ omega
        residual = np.concatenate(
            [
                laplace @ psi + inside @ omega + walls @ psi,
                u * omega_x + v * omega_y - laplace @ omega / reynolds + walls @ omega + wall @ psi + lid,
            ]
        )
        if np.abs(residual).max() < tolerance * n:
            break
        transport = sparse.diags(omega_x) @ d_y - sparse.diags(omega_y) @ d_x
        flow = sparse.diags(u) @ d_x + sparse.diags(v) @ d_y - laplace / reynolds
        jacobian = sparse.block_array([[laplace + walls, inside], [transport + wall, flow + walls]], format="csc")
        change = splu(jacobian).solve(residual)
        psi, omega = psi - change[: n * n], omega - change[n * n :]
    else:
        raise ArithmeticError(f"cavity: Newton's method did not converge at Re = {reynolds:g}")
    u, v = (d_y @ psi).reshape(n, n), -(d_x @ psi).reshape(n, n)
    u[:, -1] = 1.0
    return x, u, v


def _wall_vorticity(n: int, h: float) -> tuple[sparse.csr_array, Array]:
    """Thom's formula ω = −2 ψ₁/h² (− 2/h at the lid): a matrix for ψ next to the walls, and a constant."""
    index = np.arange(n * n).reshape(n, n)
    walls = [index[0, 1:-1], index[-1, 1:-1], index[1:-1, 0], index[1:-1, -1]]
    neighbours = [index[1, 1:-1], index[-2, 1:-1], index[1:-1, 1], index[1:-1, -2]]
    rows, columns = np.concatenate(walls), np.concatenate(neighbours)
    matrix = sparse.csr_array((np.full(len(rows), 2 / h**2), (rows, columns)), shape=(n * n, n * n))
    lid = np.zeros(n * n)
    lid[index[1:-1, -1]] = 2 / h
    return matrix, lid
