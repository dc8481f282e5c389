"""Xu, Jiang, Svetozarevic and Jones (2023), *Constrained Efficient Global Optimization of Expensive Black-box Functions*: CONFIG."""
