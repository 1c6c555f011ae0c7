"""Reference solvers, each tested by order of convergence, conservation or a closed form."""

from dcnn.pde.solvers.cavity import solve_cavity
from dcnn.pde.solvers.cole_hopf import solve_burgers
from dcnn.pde.solvers.euler import solve_euler
from dcnn.pde.solvers.fitzhugh_nagumo import solve_diffusion_reaction
from dcnn.pde.solvers.riemann import SOD, riemann
from dcnn.pde.solvers.shift import shifted
from dcnn.pde.solvers.spectral import solve_allen_cahn

__all__ = [
    "SOD",
    "riemann",
    "shifted",
    "solve_allen_cahn",
    "solve_burgers",
    "solve_cavity",
    "solve_diffusion_reaction",
    "solve_euler",
]
