"""Posteriors on boxes, whose points are drawn as a run goes on."""
