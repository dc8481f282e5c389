"""Version of the library, in a file that needs no JAX.

The build reads it without importing the package.
"""

#: The version of the library.
__version__ = "0.5.0"
