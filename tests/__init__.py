"""Tests of jaxbandit."""
