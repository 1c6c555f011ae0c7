"""Solvers against closed forms, orders of convergence, conservation and published solutions."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat
from scipy.optimize import brentq

from dcnn.pde import pdebench, problems
from dcnn.pde.problems.advection import moved_profile
from dcnn.pde.sine_series import SineSeries
from dcnn.pde.solution import Array
from dcnn.pde.solvers.cavity import solve_cavity
from dcnn.pde.solvers.cole_hopf import solve_burgers
from dcnn.pde.solvers.euler import conserved, hllc, primitive, solve_euler
from dcnn.pde.solvers.fitzhugh_nagumo import laplacian, solve_diffusion_reaction
from dcnn.pde.solvers.spectral import solve_allen_cahn

SHARED = Path(__file__).parents[3] / "shared/data/pde"


def shared(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(f"{SHARED / name} is not here")
    return SHARED / name


def orders(errors: list[float]) -> np.ndarray:
    return np.log2(np.array(errors[:-1]) / np.array(errors[1:]))


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


# ---- advection ------------------------------------------------------------------------------------------------


def test_a_profile_moves_and_returns_after_one_period():
    problem = problems.get("advection")
    moved = moved_profile(problem, speed=0.5)  # to t = 2
    x, u = moved.grid["x"], moved.fields["u"]
    np.testing.assert_allclose(u[:, -1], u[:, 0], atol=1e-12)
    np.testing.assert_allclose(u[:, 100], problem.profile(x - 0.5), atol=1e-12)


# ---- compressible flow ----------------------------------------------------------------------------------------

# The exact solution of the Riemann problem of gas dynamics (Toro, *Riemann Solvers*, ch. 4).
State = tuple[float, float, float]  # density, velocity, pressure

SOD: tuple[State, State] = ((1.0, 0.0, 1.0), (0.125, 0.0, 0.1))


def star_state(left: State, right: State, gamma: float) -> tuple[float, float]:
    """Pressure and velocity between the two outer waves."""

    def jump(p: float, state: State) -> float:
        """Change of velocity across the wave that joins `state` to pressure p: shock or rarefaction."""
        rho, _, p0 = state
        if p > p0:
            return (p - p0) * np.sqrt(2 / (rho * ((gamma + 1) * p + (gamma - 1) * p0)))
        sound = np.sqrt(gamma * p0 / rho)
        return 2 * sound / (gamma - 1) * ((p / p0) ** ((gamma - 1) / (2 * gamma)) - 1)

    def mismatch(p: float) -> float:
        return jump(p, left) + jump(p, right) + right[1] - left[1]

    highest = max(left[2], right[2])
    while mismatch(highest) < 0:
        highest *= 2
    p = brentq(mismatch, 1e-14 * highest, highest, xtol=1e-15, rtol=1e-14)
    return p, 0.5 * (left[1] + right[1] + jump(p, right) - jump(p, left))


def riemann(left: State, right: State, speed: Array, gamma: float = 1.4) -> tuple[Array, Array, Array]:
    """Density, velocity and pressure at x/t = `speed` of two states that met at x = 0, t = 0."""
    p, u = star_state(left, right, gamma)
    on_left = speed < u
    # The right half is the mirror image of the left half.
    from_left = _half(left, p, u, speed, gamma)
    mirrored = _half((right[0], -right[1], right[2]), p, -u, -speed, gamma)
    from_right = (mirrored[0], -mirrored[1], mirrored[2])
    rho, v, pressure = (np.where(on_left, a, b) for a, b in zip(from_left, from_right, strict=True))
    return rho, v, pressure


def _half(state: State, p: float, u: float, speed: Array, gamma: float) -> tuple[Array, Array, Array]:
    """The solution left of the contact."""
    rho, v, p0 = state
    sound = np.sqrt(gamma * p0 / rho)
    if p > p0:  # shock
        ratio, g = p / p0, (gamma - 1) / (gamma + 1)
        front = v - sound * np.sqrt((gamma + 1) / (2 * gamma) * ratio + (gamma - 1) / (2 * gamma))
        behind = rho * (ratio + g) / (g * ratio + 1)
        ahead = speed < front
        return np.where(ahead, rho, behind), np.where(ahead, v, u), np.where(ahead, p0, p)
    behind = rho * (p / p0) ** (1 / gamma)
    head, tail = v - sound, u - np.sqrt(gamma * p / behind)
    inside = np.clip(speed, head, tail)  # constant states on both sides of the fan continue its edges
    fan = 2 / (gamma + 1) + (gamma - 1) / ((gamma + 1) * sound) * (v - inside)
    return (
        rho * fan ** (2 / (gamma - 1)),
        2 / (gamma + 1) * (sound + (gamma - 1) / 2 * v + inside),
        p0 * fan ** (2 * gamma / (gamma - 1)),
    )


@pytest.mark.parametrize(
    ("left", "right", "pressure", "velocity"),
    [  # Toro, Table 4.3
        ((1.0, 0.0, 1.0), (0.125, 0.0, 0.1), 0.30313, 0.92745),
        ((1.0, -2.0, 0.4), (1.0, 2.0, 0.4), 0.00189, 0.00000),
        ((1.0, 0.0, 1000.0), (1.0, 0.0, 0.01), 460.894, 19.5975),
        ((1.0, 0.0, 0.01), (1.0, 0.0, 100.0), 46.0950, -6.19633),
        ((5.99924, 19.5975, 460.894), (5.99242, -6.19633, 46.0950), 1691.64, 8.68975),
    ],
)
def test_riemann_star_states_of_toro(left, right, pressure, velocity):
    p, u = star_state(left, right, gamma=1.4)
    assert p == pytest.approx(pressure, rel=3e-3 if pressure < 0.01 else 1e-5)
    assert u == pytest.approx(velocity, rel=1e-5, abs=1e-5)


def test_riemann_satisfies_the_jump_conditions_and_the_rarefaction_invariants():
    speed = np.linspace(-2, 2, 4001)
    rho, v, p = riemann(*SOD, speed, 1.4)
    shock = np.argmax(np.abs(np.diff(p)) * (speed[1:] > 1))
    inside, outside = np.stack([rho, v, p])[:, shock - 1], np.stack([rho, v, p])[:, shock + 2]
    flux = [hllc(w[:, None], w[:, None], 1.4)[:, 0] for w in (inside, outside)]
    jump = conserved(inside, 1.4) - conserved(outside, 1.4)
    np.testing.assert_allclose((flux[0] - flux[1]) / jump, (flux[0] - flux[1])[0] / jump[0], rtol=1e-10)
    fan = (p > 0.304) & (p < 0.99)
    np.testing.assert_allclose((p / rho**1.4)[fan], 1.0, rtol=1e-12)
    np.testing.assert_allclose((v + 5 * np.sqrt(1.4 * p / rho))[fan], 5 * np.sqrt(1.4), rtol=1e-12)


def test_sods_tube_converges_to_the_exact_solution():
    errors = []
    for n in (100, 200, 400):
        x = (np.arange(n) + 0.5) / n
        start = np.where(x < 0.5, np.array(SOD[0])[:, None], np.array(SOD[1])[:, None])
        got = solve_euler(start, 1.0, np.array([0.0, 0.2]), gamma=1.4, boundary="outgoing")[:, :, -1]
        exact = np.stack(riemann(*SOD, (x - 0.5) / 0.2, 1.4))
        errors.append(np.abs(got - exact).mean())
    assert errors[-1] < 2e-3
    assert (orders(errors) > 0.8).all()  # first order at best where the solution jumps


def wave_means(n: int, t: float) -> np.ndarray:
    """Cell means of 2 + sin 2π(x − t)."""
    edges = np.arange(n + 1) / n - t
    return 2 - np.diff(np.cos(2 * np.pi * edges)) * n / (2 * np.pi)


def test_smooth_flow_converges_with_second_order():
    errors = []
    for n in (64, 128, 256):
        start = np.stack([wave_means(n, 0.0), np.ones(n), np.ones(n)])
        errors.append(np.abs(solve_euler(start, 1.0, np.array([0.0, 0.5]))[0, :, -1] - wave_means(n, 0.5)).mean())
    assert (orders(errors) > 1.8).all()
    assert errors[-1] < 2.5e-4


def test_periodic_flow_conserves_mass_momentum_and_energy():
    x = (np.arange(128) + 0.5) / 128
    start = np.stack([2 + np.sin(2 * np.pi * x), np.cos(2 * np.pi * x), 3 + np.sin(4 * np.pi * x)])
    got = solve_euler(start, 1.0, np.array([0.0, 0.4]), eta=1e-3, zeta=1e-3)
    totals = [conserved(got[:, :, i], 5 / 3).sum(1) for i in (0, 1)]
    np.testing.assert_allclose(totals[1], totals[0], rtol=1e-12, atol=1e-10)


def test_viscosity_damps_a_slow_shear_free_wave_at_the_known_rate():
    n, mu = 128, 0.02
    x = (np.arange(n) + 0.5) / n
    v0 = 1e-4 * np.sin(2 * np.pi * x)
    start = np.stack([np.ones(n), v0, np.full(n, 0.6)])  # sound speed 1
    t = 1.0  # one period of the standing sound wave
    got = solve_euler(start, 1.0, np.array([0.0, t]), gamma=5 / 3, eta=0.75 * mu)[1, :, -1]
    decay = np.exp(-mu * (2 * np.pi) ** 2 / 2 * t)  # linear acoustics, to first order in μ k
    assert np.abs(got).max() / 1e-4 == pytest.approx(decay, rel=0.02)


def test_outgoing_boundaries_let_a_pulse_leave():
    n = 200
    x = -1 + 2 * (np.arange(n) + 0.5) / n
    start = np.stack([np.ones(n), np.zeros(n), 0.6 + 1e-3 * np.exp(-50 * x**2)])
    got = solve_euler(start, 2.0, np.array([0.0, 3.0]), boundary="outgoing")[2, :, -1]
    assert np.abs(got - 0.6).max() < 2e-5


def test_hllc_takes_the_upwind_flux_of_supersonic_flow_and_keeps_a_contact():
    fast, other = np.array([[1.0], [5.0], [1.0]]), np.array([[0.5], [5.5], [0.8]])
    np.testing.assert_allclose(hllc(fast, other, 1.4)[:, 0], [5.0, 26.0, 5 * (2.5 + 12.5 + 1)])
    still = np.array([[1.0], [0.0], [1.0]]), np.array([[0.1], [0.0], [1.0]])
    np.testing.assert_allclose(hllc(*still, 1.4)[:, 0], [0.0, 1.0, 0.0], atol=1e-15)
    np.testing.assert_allclose(primitive(conserved(fast, 1.4), 1.4), fast)


# ---- diffusion-reaction ---------------------------------------------------------------------------------------


def test_laplacian_is_second_order_and_conserves():
    errors = []
    for n in (16, 32, 64):
        x = (np.arange(n) + 0.5) / n
        field = np.cos(np.pi * x)[:, None] * np.cos(2 * np.pi * x)[None, :]
        got = laplacian(field, 1 / n, 1 / n)
        assert abs(got.sum()) < 1e-8
        errors.append(np.abs(got + 5 * np.pi**2 * field).max())
    assert (orders(errors) > 1.9).all()


def test_pure_diffusion_and_pure_reaction_follow_their_closed_forms():
    n, t = 32, np.linspace(0, 1, 3)
    x = (np.arange(n) + 0.5) / n
    u0 = 1e-6 * np.cos(np.pi * x)[:, None] * np.ones(n)  # so small that u³ is nothing
    u, v = solve_diffusion_reaction(u0, 0 * u0, (1.0, 1.0), t, D_u=0.1, D_v=0.1, k=0.0, tolerance=1e-12)
    # u_t = −λu + u − v, v_t = −λv + u − v for one eigenvector of the discrete Laplacian: e^(−λt) (1 + t, t) u0
    rate = 0.1 * (2 - 2 * np.cos(np.pi / n)) * n**2
    np.testing.assert_allclose(u[..., -1], np.exp(-rate) * 2 * u0, rtol=1e-5, atol=1e-12)
    np.testing.assert_allclose(v[..., -1], np.exp(-rate) * u0, rtol=1e-5, atol=1e-12)


def test_diffusion_reaction_agrees_with_pdebench():
    with pdebench.open(shared("2D_diff-react_regen_seed0000_tstride5.h5")) as samples:
        known = samples[0]
    t = known.grid["t"].astype(float)
    start = (known.fields[f][..., 0] for f in "uv")
    got = dict(zip("uv", solve_diffusion_reaction(*start, (2.0, 2.0), t), strict=True))
    for field in "uv":
        for frame in range(1, len(t)):
            assert relative(got[field][..., frame], known.fields[field][..., frame]) < 1e-3


# ---- spectral -------------------------------------------------------------------------------------------------


WAVE = SineSeries((-1.0,))  # −sin πx


def test_burgers_agrees_with_the_published_shock():
    known = loadmat(shared("raissi_burgers_shock.mat"))
    x, t = known["x"].ravel(), known["t"].ravel()
    assert np.abs(solve_burgers(WAVE, WAVE.potential, x, t, 0.01 / np.pi) - known["usol"]).max() < 1e-8


def test_allen_cahn_agrees_with_the_published_solution():
    known = loadmat(shared("raissi_AC.mat"))
    x, t = known["x"].ravel(), known["tt"].ravel()
    got = solve_allen_cahn(lambda x: x**2 * np.cos(np.pi * x), x, t, 1e-4, 5.0)
    assert np.abs(got - known["uu"]).max() < 1e-8


def burgers_by_cole_hopf(x: np.ndarray, t: float, nu: float) -> np.ndarray:
    """The exact solution from −sin πx, by Gauss–Hermite quadrature of the heat kernel."""
    z, w = np.polynomial.hermite.hermgauss(80)
    y = x[:, None] - 2 * np.sqrt(nu * t) * z
    f = w * np.exp(-np.cos(np.pi * y) / (2 * np.pi * nu))
    return -(np.sin(np.pi * y) * f).sum(1) / f.sum(1)


@pytest.mark.parametrize("t", [0.01, 0.5])
def test_burgers_is_the_gauss_hermite_quadrature(t):
    x, nu = np.linspace(-1, 1, 41), 0.1
    found = solve_burgers(WAVE, WAVE.potential, x, np.array([0, t]), nu)[:, -1]
    np.testing.assert_allclose(found, burgers_by_cole_hopf(x, t, nu), atol=1e-10)


@pytest.mark.parametrize("nu", [5e-4, 1e-5])
def test_burgers_with_hardly_any_viscosity_is_the_inviscid_wave_beside_a_shock_of_its_width(nu):
    x = np.linspace(0.05, 0.95, 10)
    found = solve_burgers(WAVE, WAVE.potential, x, np.array([0, 0.9]), nu)[:, -1]
    lines = np.linspace(0.5, 1.0, 200_001)  # where characteristics x = y − t sin πy come from, right of the shock
    exact = -np.sin(np.pi * np.interp(x, lines - 0.9 * np.sin(np.pi * lines), lines))
    assert np.abs(found - exact).max() < 30 * nu
    near = solve_burgers(WAVE, WAVE.potential, np.array([-8 * nu, 8 * nu]), np.array([0, 0.9]), nu)[:, -1]
    assert near[0] == pytest.approx(-near[1], rel=1e-6)
    assert 0.7 < near[0] < 1.0


def test_allen_cahn_is_fourth_order_in_time():
    def late(step):
        return solve_allen_cahn(
            lambda x: np.sin(np.pi * x), np.linspace(-1, 1, 9), np.array([0, 1.0]), 0.01, 5.0, n=64, longest_step=step
        )[:, -1]

    errors = [np.abs(late(step) - late(1e-3)).max() for step in (0.1, 0.05, 0.025)]
    assert errors[-1] < 1e-5
    assert (orders(errors) > 3.5).all()


def test_allen_cahn_of_a_constant_follows_its_ordinary_equation():
    t = np.linspace(0, 1, 5)
    got = solve_allen_cahn(lambda x: 0.1 + 0 * x, np.zeros(1), t, 1e-4, 5.0, n=16)[0]
    np.testing.assert_allclose(got, (1 + (1 / 0.01 - 1) * np.exp(-10 * t)) ** -0.5, rtol=1e-9)


# ---- cavity ---------------------------------------------------------------------------------------------------

# Ghia, Ghia and Shin, J. Comput. Phys. 48, 387 (1982), Re = 100: u along x = ½, v along y = ½.
GHIA_U = {0.0547: -0.03717, 0.1016: -0.06434, 0.1719: -0.10150, 0.2813: -0.15662, 0.4531: -0.21090, 0.5: -0.20581}
GHIA_U |= {0.6172: -0.13641, 0.7344: 0.00332, 0.8516: 0.23151, 0.9531: 0.68717, 0.9766: 0.84123}
GHIA_V = {0.0625: 0.09233, 0.0938: 0.12317, 0.1563: 0.16077, 0.2344: 0.17527, 0.5: 0.05454}
GHIA_V |= {0.8047: -0.24533, 0.9063: -0.16914, 0.9688: -0.05906}


def test_cavity_agrees_with_ghia_and_conserves_mass():
    x, u, v = solve_cavity(100.0, cells=64)
    for position, value in GHIA_U.items():
        assert np.interp(position, x, u[32]) == pytest.approx(value, abs=0.01)
    for position, value in GHIA_V.items():
        assert np.interp(position, x, v[:, 32]) == pytest.approx(value, abs=0.01)
    assert np.trapezoid(u[32], x) == pytest.approx(0.0, abs=1e-3)
    divergence = np.gradient(u, x, axis=0) + np.gradient(v, x, axis=1)
    assert np.abs(divergence[2:-2, 2:-2]).max() < 1e-10


def test_cavity_converges_with_second_order():
    least = [solve_cavity(100.0, cells=n)[1][n // 2, n // 2] for n in (24, 48, 96)]
    assert orders(np.abs(np.diff(least)).tolist())[-1] > 1.7


def test_cavity_says_when_newton_fails():
    with pytest.raises(ArithmeticError, match="did not converge"):
        solve_cavity(100.0, cells=16, tolerance=-1.0)
