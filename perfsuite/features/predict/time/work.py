"""What layers add up, and the rates that they are computed with."""

from dataclasses import dataclass, fields

from perfsuite.features.predict.time.constants import Constants
from perfsuite.features.predict.time.message_times import Links
from perfsuite.features.predict.time.setup import MachineSetup

HANDOVER = 3  # gaps that a message costs: fitted by itself, it was 13.2 µs, and the gap 4.1 µs
ACTIVATION = 2  # bytes per element of what layers pass on: half precision


@dataclass(frozen=True)
class Work:
    """Seconds of one micro-batch: kernels, exposed messages, and the host's time to launch them."""

    forward: float = 0.0
    backward: float = 0.0
    tensor: float = 0.0
    gathers: float = 0.0
    experts: float = 0.0
    launch: float = 0.0

    def times(self, count: float) -> "Work":
        """The work of ``count`` such layers."""
        return Work(*(getattr(self, field.name) * count for field in fields(self)))

    def plus(self, other: "Work") -> "Work":
        """The work of both."""
        return Work(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def device(self) -> float:
        """Seconds on the device."""
        return self.forward + self.backward + self.tensor + self.gathers + self.experts


@dataclass(frozen=True)
class Rates:
    """What a machine reaches with these constants: FLOP/s of matmuls and attention, bytes per second, and links."""

    matmul: float
    fp8: float
    fp4: float
    attention: float
    flash: float
    attention3: float
    memory: float
    links: Links
    multiprocessors: int

    @classmethod
    def of(cls, machine: MachineSetup, constants: Constants) -> "Rates":
        """A machine's rates times the constants."""
        return cls(
            matmul=machine.matmul_flops * constants.matmul,
            fp8=machine.fp8_flops * constants.matmul,
            fp4=machine.fp4_flops * constants.matmul * constants.fp4,
            attention=machine.flops * constants.attention,
            flash=machine.flops * constants.flash,
            attention3=machine.flops * constants.attention3,
            memory=machine.memory_bandwidth * constants.memory,
            links=Links(
                link=machine.link_bandwidth * constants.link,
                network=machine.network_bandwidth * constants.network,
                node=machine.domain,
                start=constants.start,
                hop=constants.hop,
                latency=machine.network_latency,
                handover=HANDOVER * constants.gap,
                crossing=constants.crossing,
                nominal=machine.link_bandwidth,
                nominal_network=machine.network_bandwidth,
            ),
            multiprocessors=machine.multiprocessors,
        )
