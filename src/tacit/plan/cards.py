"""The GPUs that can be planned for, by what their makers publish.

Only the H200 was measured. The others are expected to reach the same share of their published
bandwidth and FLOP/s as the H200 does (`costs.py`).
"""

from dataclasses import dataclass

from tacit.errors import ConfigError
from tacit.registry import did_you_mean

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
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
CARDS = {
    card.name: card
    for card in (
        Card(
            name="H200",
            memory_gib=141,
            bytes_per_s=4.8e12,
            flops_per_s=989.5e12,
            link_per_s=450e9,
            measured=True,
        ),
        Card(name="B200", memory_gib=180, bytes_per_s=8e12, flops_per_s=2250e12, link_per_s=900e9),
        Card(
            name="H100", memory_gib=80, bytes_per_s=3.35e12, flops_per_s=989.5e12, link_per_s=450e9
        ),
        Card(
            name="A100", memory_gib=80, bytes_per_s=2.039e12, flops_per_s=312e12, link_per_s=300e9
        ),
        Card(
            name="A100-40",
            memory_gib=40,
            bytes_per_s=1.555e12,
            flops_per_s=312e12,
            link_per_s=300e9,
        ),
        Card(name="L40S", memory_gib=48, bytes_per_s=864e9, flops_per_s=362e12, link_per_s=32e9),
        Card(name="L4", memory_gib=24, bytes_per_s=300e9, flops_per_s=121e12, link_per_s=32e9),
    )
}


def find_card(name: str) -> Card:
    for known, card in CARDS.items():
        if known.lower() == name.lower():
            return card
    raise ConfigError(f"--gpu: no figures for `{name}`; {did_you_mean(name, CARDS)}")
