"""Processes of a study that find each other by their own connections, and what they are told when one is missing, gone or mistaken."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jaxbandit import InvalidArgument
from jaxbandit.study.plan import rendezvous
from jaxbandit.study.plan.processes import join
from jaxbandit.study.plan.rendezvous import ProcessLost, Rendezvous
from tests.support.small_study import ONE_CELL, free_port, written


@pytest.fixture
def address() -> str:
    return f"127.0.0.1:{free_port()}"


def together(*acts: Callable[[], Any]) -> list[Any]:
    """What each act returns or raises; they run at the same time, as processes do."""
    with ThreadPoolExecutor(len(acts)) as pool:
        futures = [pool.submit(act) for act in acts]
        return [future.exception(timeout=20) or future.result() for future in futures]


def come_and_meet(address: str, index: int, count: int) -> str:
    with Rendezvous(address, index, count) as own:
        own.come()
        own.meet()
    return "met"


def come_and_go(address: str, index: int, count: int) -> str:
    with Rendezvous(address, index, count) as own:
        own.come()
    return "gone"


def test_all_meet(address: str) -> None:
    assert together(*(lambda i=i: come_and_meet(address, i, 4) for i in range(4))) == ["met"] * 4


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_one_has_gone_before_all_have_met(lost: int, address: str) -> None:
    acts = [lambda i=i: (come_and_go if i == lost else come_and_meet)(address, i, 3) for i in range(3)]
    ends = together(*acts)
    assert ends[lost] == "gone"
    for index in {0, 1, 2} - {lost}:
        assert isinstance(ends[index], ProcessLost)
        said = str(ends[index])
        assert f"another process has gone, number {lost}, before all had met" in said and "start all of them again" in said


def test_one_does_not_come(address: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(rendezvous, "SECONDS_TO_COME", 0.5)
    ends = together(*(lambda i=i: come_and_meet(address, i, 4) for i in range(2)))
    for end in ends:
        assert isinstance(end, ProcessLost) and f"process 2, 3 did not come to {address} within" in str(end)
    with pytest.raises(ProcessLost, match=rf"^process 1 of 2: process 0 did not answer at {address} within .*refused"):
        come_and_meet(address, 1, 2)


@pytest.mark.parametrize(
    ("others", "words"), [([(1, 3), (1, 3)], "two processes have the number 1"), ([(2, 4)], "one was told --processes 4, another 3")]
)
def test_numbers_that_do_not_fit(others: list[tuple[int, int]], words: str, address: str) -> None:
    ends = together(*(lambda own=own: come_and_meet(address, *own) for own in ((0, 3), *others)))
    assert all(isinstance(end, InvalidArgument) and f"process-id: {words}" in str(end) for end in ends), ends


def test_strangers_are_not_heard(address: str) -> None:
    def strange() -> None:
        host, port = address.split(":")
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"x" * 1000, b"jaxbandit-study one 2\n", b""):
            for _ in range(100):
                try:
                    with socket.create_connection((host, int(port)), timeout=5) as line:
                        line.sendall(words)
                    break
                except OSError:  # the first process has not come yet
                    pass

    def later() -> str:
        strange()
        return come_and_meet(address, 1, 2)

    assert together(lambda: come_and_meet(address, 0, 2), later) == ["met", "met"]


def test_addresses_that_cannot_be_used(address: str) -> None:
    with socket.create_server(("", int(address.split(":")[1]))), pytest.raises(InvalidArgument, match=r"^coordinator: .* in use"):
        join(address, 2, 0)
    for host in ("no.such.host.invalid", "x" * 300, "\u0100" * 70):
        with pytest.raises(InvalidArgument, match=rf"^coordinator: there is no host {host[:40]}"):
            join(f"{host}:80", 2, 1)


def test_strangers_who_say_nothing_or_half_a_line_keep_nobody_waiting(address: str) -> None:
    """Their time to speak is longer than that of the test."""

    def calls() -> None:
        begun = time.monotonic()
        while time.monotonic() < begun + 10:
            with contextlib.suppress(ConnectionRefusedError):
                strangers.extend(socket.create_connection(("127.0.0.1", int(address.split(":")[1]))) for _ in range(2))
                strangers[1].sendall(rendezvous.GREETING.encode())
                break

    strangers: list[socket.socket] = []
    assert together(lambda: come_and_meet(address, 0, 2), lambda: (calls(), come_and_meet(address, 1, 2))[1]) == ["met", "met"]
    for stranger in strangers:
        assert stranger.recv(1) == b""  # sent away
        stranger.close()


@pytest.mark.parametrize(
    ("host", "loopback"), [("127.0.0.1", True), ("localhost", True), ("a-service.of.a-cluster.invalid", False), ("a-machine", False)]
)
def test_the_first_process_listens_at_its_address_alone(host: str, loopback: bool, monkeypatch: Any) -> None:
    """A name of no address, or of the loopback as Debian has it, has the first process listen everywhere."""
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda name, *args, **own: real({"a-machine": "127.0.1.1"}.get(name, name), *args, **own))
    with Rendezvous(f"{host}:{free_port()}", 0, 2)._listener() as listener:
        assert ipaddress.ip_address(listener.getsockname()[0]).is_loopback == loopback


def test_a_silent_service_at_the_address(address: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(rendezvous, "SECONDS_TO_COME", 0.1)
    monkeypatch.setattr(rendezvous, "SECONDS_TO_SPEAK", 0.2)
    with socket.create_server(("127.0.0.1", int(address.split(":")[1]))), pytest.raises(ProcessLost, match="number 0, before all had met"):
        come_and_meet(address, 1, 2)


def test_another_service_at_the_address(address: str) -> None:
    def other() -> None:
        with socket.create_server(("127.0.0.1", int(address.split(":")[1]))) as server:
            line, _ = server.accept()
            with line:
                line.sendall(b"220 mail\n")
                line.recv(100)

    _, end = together(other, lambda: come_and_meet(address, 1, 2))
    assert isinstance(end, InvalidArgument) and str(end).startswith("coordinator: no process of a study answers at")


@pytest.mark.full
def test_a_process_that_cannot_begin_ends_the_others_in_one_line(tmp_path: Path, address: str) -> None:
    """The second process has a study file that cannot be read."""
    good, bad = written(tmp_path, ONE_CELL), tmp_path / "bad.toml"
    bad.write_text("horizon = 'x'")
    options = ["--out", str(tmp_path / "out"), "--no-cache", "--coordinator", address, "--processes", "2", "--process-id"]
    command = [sys.executable, "-m", "jaxbandit", "run"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([*command, str(study), *options, str(i)], **pipes) for i, study in enumerate((good, bad))]
    (_, said), _ = (process.communicate(timeout=100) for process in both)
    assert [process.returncode for process in both] == [3, 2]
    assert said.count("\n") == 1 and said.startswith("error: process 0 of 2: another process has gone, number 1, before all had met")
