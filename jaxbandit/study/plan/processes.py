"""Several processes that run one study: which batches each runs, and how they wait for each other.

Each process runs whole batches on its own devices, so that results do not depend on how many processes there are. They share a
directory, in which finished batches and checkpoints lie.
"""

from __future__ import annotations

import dataclasses

import jax

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.files import reason_of
from jaxbandit.study.plan.rendezvous import ProcessLost, Rendezvous

__all__ = ["ProcessLost", "Processes", "join", "this_process"]

MAX_PORT = 65_535
MAX_PROCESSES = 100_000
SECONDS_TO_DETECT = 60  # for a cluster to say where its processes are


@dataclasses.dataclass(frozen=True)
class Processes:
    """This process, numbered ``index`` from 0, among ``count``; the first one gathers the results.

    Attributes:
      index: number of this process.
      count: number of all processes.
      rendezvous: connections to the others, until all have met; ``None`` where JAX's own service has brought them together, or there is
        only this one.
    """

    index: int = 0
    count: int = 1
    rendezvous: Rendezvous | None = None

    @property
    def first(self) -> bool:
        """True for the process that writes what is written once."""
        return self.index == 0

    def owns(self, batch: int) -> bool:
        """Say whether this process runs a batch, by the batch's number in the study."""
        return batch % self.count == self.index

    def meet(self, name: str) -> None:
        """Wait until all processes have come, and close the connections that they met by; raises :class:`ProcessLost` when one has gone."""
        if self.count == 1:
            return
        if self.rendezvous is not None:
            with self.rendezvous as rendezvous:
                rendezvous.meet()
            return
        from jax.experimental.multihost_utils import sync_global_devices

        try:
            sync_global_devices(name)
            jax.distributed.shutdown()
        except Exception as error:  # of the coordination service or of the collective, whichever notices first
            raise ProcessLost(
                f"process {self.index} of {self.count}: another process has gone ({reason_of(error)}); run all of them again with --resume"
            ) from error


def this_process() -> Processes:
    """Return the place of this process among those that JAX's own service has brought together; without that service it is the only one."""
    return Processes(index=jax.process_index(), count=jax.process_count())


def join(coordinator: str | None, processes: int | None, process: int | None) -> Processes:
    """Join the other processes of a study, before JAX starts its devices; return the place of this one.

    Args:
      coordinator: ``HOST:PORT`` of the first process, or ``"auto"`` in a cluster where JAX finds the others by itself (Slurm,
        Kubernetes, Open MPI and others).
      processes: number of processes; not with ``"auto"``.
      process: number of this one, from 0; not with ``"auto"``.

    Raises:
      InvalidArgument: when only some of the three are given, or they are out of range, or the address cannot be used.
      ProcessLost: when another process has not come in time, or has gone again.
    """
    if coordinator == "auto" and processes is None and process is None:
        coordinator, processes, process = _place_in_cluster()
    if coordinator is None or processes is None or process is None:
        raise InvalidArgument(
            f"processes: --coordinator, --processes and --process-id go together, or --coordinator auto alone; got {coordinator},"
            f" {processes}, {process}"
        )
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not port.isascii() or not 1 <= int(port[:6]) <= MAX_PORT:
        raise InvalidArgument(f"coordinator: expected HOST:PORT with a port from 1 to {MAX_PORT}, or auto; got {short(coordinator)}")
    checks.integer("processes", processes, least=1, most=MAX_PROCESSES)
    if checks.integer("process-id", process, least=0) >= processes:
        raise InvalidArgument(f"process-id: must be below --processes {processes}, got {process}")
    rendezvous = Rendezvous(coordinator, process, processes)
    rendezvous.come()
    return Processes(process, processes, rendezvous)


def _place_in_cluster() -> tuple[str, int, int]:
    """Return coordinator, number of processes and number of this one in a cluster that JAX knows; leave this one its own GPU of a machine.

    JAX's service itself is not started: it ends every process when one has gone. Raises ``InvalidArgument`` where there is no cluster.
    """
    otherwise = "run in a cluster such as Slurm's, or give HOST:PORT with --processes and --process-id"
    try:
        from jax._src.clusters import ClusterEnv  # what jax.distributed.initialize() asks; it has no public name

        found = ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, SECONDS_TO_DETECT)
    except Exception as error:  # of what each cluster is asked for
        raise InvalidArgument(f"coordinator: the processes cannot meet by auto ({reason_of(error)}); {otherwise}") from error
    coordinator, processes, process, devices = found
    if coordinator is None or processes is None or process is None:
        raise InvalidArgument(f"coordinator: auto finds no cluster here; {otherwise}")
    if devices is not None:
        for platform in ("cuda", "rocm"):
            jax.config.update(f"jax_{platform}_visible_devices", ",".join(map(str, devices)))
    return coordinator, processes, process
