"""Tests of jaxbandit: unit by unit, against independent references, of studies, by statistics, and of the repository."""
