"""Reference solvers, each tested by order of convergence, conservation or a closed form."""
