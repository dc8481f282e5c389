"""Independent references in float64 NumPy, written from the papers, with no JAX and nothing of ``jaxbandit``."""
