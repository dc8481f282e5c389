"""Independent references in float64 NumPy, written from the papers."""
