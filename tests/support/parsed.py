"""Python sources as trees, which the rules of one process share; nobody changes them."""

import ast
import functools


@functools.cache
def tree_of(source: str) -> ast.Module:
    return ast.parse(source)
