"""The version, in a file that the build can read without importing JAX."""

__version__ = "0.4.0"  #: the version of the library
