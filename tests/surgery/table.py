"""The whole table of what other code does to an orthogonal weight, by sections."""

from surgery.compressing import COMPRESSION
from surgery.moving import MOVES
from surgery.parametrizing import PARAMETRIZATIONS
from surgery.quantizing import QUANTIZATION
from surgery.reading import READINGS
from surgery.rows import Row
from surgery.tying import ASSIGNMENTS, TIES

__all__ = ["SECTIONS"]

SECTIONS: dict[str, tuple[Row, ...]] = {
    "Assigning a weight": ASSIGNMENTS,
    "Reading a gradient": READINGS,
    "Sharing a weight": TIES,
    "Other parametrizations": PARAMETRIZATIONS,
    "Fusing and pruning": COMPRESSION,
    "Quantizing": QUANTIZATION,
    "Moving and averaging parameters": MOVES,
}
