"""Xu, Jiang, Svetozarevic and Jones (2023): CONFIG.

*Constrained Efficient Global Optimization of Expensive Black-box Functions*.
"""
