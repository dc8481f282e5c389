"""How the processes of a study find each other: each of them calls the first one, and stays on the line until all have met.

The connections are this module's own. JAX's service for several processes ends every process, with a C++ stack, when one of them has
gone or never comes; a connection that closes is an error that can be said in one line.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import selectors
import socket
import sys
import time
from types import TracebackType

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.files import reason_of

SECONDS_TO_COME = 120.0  # for all processes to be started
SECONDS_TO_SPEAK = 10.0  # for who has called to say its number, and for who was called to answer
SECONDS_BETWEEN_CALLS = 0.2
LONGEST_LINE = 200  # bytes
LONGEST_HOST = 253  # characters of a host's name in a message, as many as the domain name system has
GREETING = "jaxbandit-study"


class ProcessLost(RuntimeError):
    """Another process of the study has gone, or never came; what is finished is kept, and ``resume`` goes on."""


class Rendezvous:
    """Connections of the processes of a study; a context manager, which closes them.

    Attributes:
      index: number of this process, from 0.
      count: number of processes.
      address: ``HOST:PORT`` of the first process.
    """

    def __init__(self, address: str, index: int, count: int) -> None:
        self.index, self.count, self.address = index, count, address
        self._lines: dict[int, socket.socket] = {}  # by the number of the other process; the first one has all, the others its own

    def __enter__(self) -> Rendezvous:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; a process that still waits for this one is told by that."""
        for line in self._lines.values():
            line.close()
        self._lines = {}

    def come(self) -> None:
        """Wait until all processes have come.

        Raises:
          InvalidArgument: when nobody can listen or call at the address, or two processes say the same number or other counts.
          ProcessLost: when one has not come within ``SECONDS_TO_COME``, or has gone again.
        """
        try:
            if self.index == 0:
                self._receive()
            else:
                self._call()
        except BaseException:
            self.close()
            raise

    def meet(self) -> None:
        """Wait until all processes have called this method; raises :class:`ProcessLost` as soon as one has gone instead."""
        if self.index:
            self._say(0, "here")
            self._expect_to_go_on()
            return
        waiting = set(self._lines)
        with selectors.DefaultSelector() as selector:
            for other in waiting:
                selector.register(self._lines[other], selectors.EVENT_READ, other)
            while waiting:
                for chosen, _ in selector.select():
                    self._hear(chosen.data)
                    selector.unregister(chosen.fileobj)
                    waiting.remove(chosen.data)
        for other in self._lines:
            self._say(other, "go")

    def _receive(self) -> None:
        """Take the calls of all others; who calls and says nothing keeps nobody waiting."""
        until = time.monotonic() + SECONDS_TO_COME
        with self._listener() as listener, selectors.DefaultSelector() as selector, contextlib.ExitStack() as strangers:
            selector.register(listener, selectors.EVENT_READ, None)
            while len(self._lines) < self.count - 1:
                ready = selector.select(max(until - time.monotonic(), 0))
                if not ready:
                    missing = [str(other) for other in range(1, self.count) if other not in self._lines]
                    raise self._lost(f"process {', '.join(missing)} did not come to {self.address} within {SECONDS_TO_COME:.0f} s")
                for chosen, _ in ready:
                    if chosen.data is None:
                        line, _ = listener.accept()
                        line.setblocking(False)
                        selector.register(line, selectors.EVENT_READ, _Stranger(strangers.enter_context(line)))
                    elif isinstance(chosen.data, _Stranger):
                        self._listen_to(chosen.data, selector)
                    else:
                        self._hear(chosen.data)  # before it was asked to: the line was closed
            for other in self._lines:
                self._say(other, "go")

    def _listener(self) -> socket.socket:
        """Return a socket that listens at the coordinator's address.

        It listens at all addresses of this machine where the name stands for none of them, as that of a service of a cluster does, or
        for the loopback, by which others cannot call, as Debian has it for a machine's own name.
        """
        host, _, port = self.address.rpartition(":")
        host = host.strip("[]")
        tries: list[tuple[socket.AddressFamily, str]] = []
        with contextlib.suppress(OSError, ValueError):  # a name that stands for nothing is a service's, perhaps
            found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
            tries = [(family, str(place[0])) for family, _, _, _, place in found]
        if host != "localhost" and not _literal(host):
            tries = [(family, place) for family, place in tries if not ipaddress.ip_address(place.partition("%")[0]).is_loopback]
        try:
            for family, place in tries:
                try:
                    return socket.create_server((place, int(port)), family=family)
                except OSError as error:
                    if error.errno != errno.EADDRNOTAVAIL:
                        raise
            both = socket.has_dualstack_ipv6()
            return socket.create_server(("", int(port)), family=socket.AF_INET6 if both else socket.AF_INET, dualstack_ipv6=both)
        except OSError as error:
            raise InvalidArgument(
                f"coordinator: the first process cannot listen at port {port} of {self.address} ({reason_of(error)}); choose another port"
            ) from error

    def _listen_to(self, stranger: _Stranger, selector: selectors.BaseSelector) -> None:
        """Take what a caller says; once it is the line of a process that is still missing, the caller stays on the line."""
        line, ended = stranger.line, not stranger.hear()
        if not ended and not stranger.said.endswith(b"\n"):
            return
        selector.unregister(line)
        words = stranger.said.decode(errors="replace").split()
        if ended or len(words) != 3 or words[0] != GREETING or not all(word.isdecimal() and word.isascii() for word in words[1:]):
            line.close()  # something else on the network
            return
        index, count = int(words[1]), int(words[2])
        line.settimeout(SECONDS_TO_SPEAK)
        if count != self.count or not 0 < index < self.count or index in self._lines:
            twice = count == self.count
            wrong = f"two processes have the number {index}" if twice else f"one was told --processes {count}, another {self.count}"
            _send(line, f"refused {wrong}")
            line.close()
            for other in self._lines:
                _send(self._lines[other], f"refused {wrong}")
            raise InvalidArgument(f"process-id: {wrong}; give each of them another number from 0, and all the same --processes")
        line = line.dup()  # which stays open when strangers are sent away
        _stay_alive(line)
        self._lines[index] = line
        selector.register(line, selectors.EVENT_READ, index)

    def _call(self) -> None:
        """Call the first process until it answers, and wait until all have come."""
        host, _, port = self.address.rpartition(":")
        until, line = time.monotonic() + SECONDS_TO_COME, None
        while line is None:
            try:
                line = socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_SPEAK)
            except (socket.gaierror, ValueError) as error:  # a ValueError on a name that no host can have
                raise InvalidArgument(
                    f"coordinator: there is no host {host[:LONGEST_HOST]} ({reason_of(error)}); name that of the first process"
                ) from error
            except OSError as error:
                if time.monotonic() > until:
                    raise self._lost(
                        f"process 0 did not answer at {self.address} within {SECONDS_TO_COME:.0f} s ({reason_of(error)})"
                    ) from error
                time.sleep(SECONDS_BETWEEN_CALLS)
        _stay_alive(line)
        self._lines = {0: line}
        self._say(0, f"{GREETING} {self.index} {self.count}")
        line.settimeout(SECONDS_TO_COME + SECONDS_TO_SPEAK)  # of the first process, which has given up by then
        self._expect_to_go_on()
        line.settimeout(None)

    def _expect_to_go_on(self) -> None:
        """Wait for the first process to say that all are there."""
        words = self._hear(0)
        if words.startswith("refused "):
            raise InvalidArgument(f"process-id: {words[8:]}; give each of them another number from 0, and all the same --processes")
        if words.startswith("lost "):
            raise self._lost(words[5:])
        if words != "go":
            raise InvalidArgument(
                f"coordinator: no process of a study answers at {self.address}; name the host and port of the first process"
            )

    def _say(self, other: int, words: str) -> None:
        if not _send(self._lines[other], words):
            raise self._gone(other)

    def _hear(self, other: int) -> str:
        words = _heard(self._lines[other])
        if not words:
            raise self._gone(other)
        return words

    def _gone(self, other: int) -> ProcessLost:
        return self._lost(f"another process has gone, number {other}, before all had met; its own output says why")

    def _lost(self, words: str) -> ProcessLost:
        """Return the error, after telling the others."""
        if self.index == 0:
            for line in self._lines.values():
                _send(line, f"lost {words}")
        return ProcessLost(f"process {self.index} of {self.count}: {words}; start all of them again, as they were started")


class _Stranger:
    """Somebody who has called and not yet said a line."""

    def __init__(self, line: socket.socket) -> None:
        self.line, self.said = line, b""

    def hear(self) -> bool:
        """Take what there is to hear; say whether it may be the beginning of a process's line."""
        try:
            heard = self.line.recv(LONGEST_LINE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self.said += heard
        return bool(heard) and len(self.said) <= LONGEST_LINE


def _literal(host: str) -> bool:
    """Say whether a host is given by its address instead of a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _stay_alive(line: socket.socket) -> None:
    """Have the operating system ask now and then whether the other side, a machine that may lose its power, is still there."""
    line.settimeout(None)
    with contextlib.suppress(OSError):  # of a system without these options: a lost machine is noticed later
        line.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            for option, value in (
                (socket.TCP_KEEPIDLE, 30),
                (socket.TCP_KEEPINTVL, 10),
                (socket.TCP_KEEPCNT, 3),
            ):  # seconds, seconds, times
                line.setsockopt(socket.IPPROTO_TCP, option, value)


def _send(line: socket.socket, words: str) -> bool:
    """Send a line of text; say whether it could be sent."""
    try:
        line.sendall(words.encode()[: LONGEST_LINE - 1] + b"\n")
    except OSError:
        return False
    return True


def _heard(line: socket.socket) -> str:
    """Return the next line of text, nothing when the other side has gone or says none."""
    said = b""
    while not said.endswith(b"\n"):
        try:
            byte = line.recv(1)
        except OSError:
            return ""
        if not byte or len(said) > LONGEST_LINE:
            return ""
        said += byte
    return said.decode(errors="replace").strip()
