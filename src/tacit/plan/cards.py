"""The GPUs that can be planned for, by what their makers publish.

Only the H200 was measured. The others are expected to reach the same share of their published
bandwidth and FLOP/s as the H200 does (`costs.py`).
"""

from dataclasses import dataclass

from tacit.errors import ConfigError
from tacit.registry import did_you_mean

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Card:
    name: str
    memory_gib: float
    """What data sheets call GB; drivers report about as many GiB."""
    bytes_per_s: float
    """Bandwidth of its memory."""
    flops_per_s: float
    """bfloat16 matrix products, dense."""
    link_per_s: float
    """Bytes a second to other GPUs of the node, in one direction."""
    measured: bool = False

    @property
    def memory(self) -> float:
        """In bytes."""
        return self.memory_gib * GIB


# NVIDIA's data sheets. They give bfloat16 with sparsity, which is twice the dense figure, and
# NVLink for both directions together, which is twice one of them; cards without NVLink talk over
# PCIe 4.0 x16. H200: 141 GB, 4.8 TB/s, 1,979 TFLOPS sparse, NVLink 900 GB/s. H100 SXM: 80 GB, 3.35
# TB/s, 1,979, 900. B200 (of a DGX): 180 GB, 8 TB/s, 4,500, 1,800. A100 SXM 80 GB: 2,039 GB/s, 624,
# 600; 40 GB: 1,555 GB/s. L40S: 48 GB, 864 GB/s, 733, PCIe. L4: 24 GB, 300 GB/s, 242, PCIe.
# Name, memory, bytes/s of memory, FLOP/s, bytes/s to other GPUs.
_CARDS = (
    Card("H200", 141, 4.8e12, 989.5e12, 450e9, measured=True),
    Card("B200", 180, 8e12, 2250e12, 900e9),
    Card("H100", 80, 3.35e12, 989.5e12, 450e9),
    Card("A100", 80, 2.039e12, 312e12, 300e9),
    Card("A100-40", 40, 1.555e12, 312e12, 300e9),
    Card("L40S", 48, 864e9, 362e12, 32e9),
    Card("L4", 24, 300e9, 121e12, 32e9),
)
CARDS = {card.name: card for card in _CARDS}


def find_card(name: str) -> Card:
    for known, card in CARDS.items():
        if known.lower() == name.lower():
            return card
    raise ConfigError(f"--gpu: no figures for `{name}`; {did_you_mean(name, CARDS)}")
