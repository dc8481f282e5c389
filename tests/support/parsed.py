"""Trees of Python sources, shared within a process and never changed."""

import ast
import functools


@functools.cache
def tree_of(source: str) -> ast.Module:
    return ast.parse(source)
