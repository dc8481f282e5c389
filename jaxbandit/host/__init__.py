"""Tools of the machine and the screen.

They are executors, files, compile caches, memory, users' files of classes, progress and figures.
"""
