"""The machine and the screen: executors, files, compile caches, memory, users' files of classes, progress and figures."""
