# SPDX-License-Identifier: Apache-2.0
"""Files made wrong at random, for readers that must end in one clear error."""


def mutated(raw, rng):
    """A file with a few bytes overwritten, cut off, doubled or removed, or a number made large."""
    data = bytearray(raw)
    for _ in range(int(rng.integers(1, 5))):
        at = int(rng.integers(0, max(len(data), 1)))
        match int(rng.integers(0, 6)):
            case 0:
                data[at : at + 1] = bytes([int(rng.integers(0, 256))])
            case 1:
                data[at : at + 8] = (2 ** int(rng.integers(0, 64)) - int(rng.integers(0, 2))).to_bytes(
                    8, "little"
                )
            case 2:
                data = data[:at]
            case 3:
                data[at:at] = data[at : at + int(rng.integers(1, 60))]
            case 4:
                del data[at : at + int(rng.integers(1, 20))]
            case _:
                data[at : at + 4] = int(rng.integers(0, 2**32)).to_bytes(4, "little")
    return bytes(data)
