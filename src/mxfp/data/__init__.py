# SPDX-License-Identifier: Apache-2.0
"""One small real linear layer, embedded so that everything can be tried at once, and layers from files.

The embedded one is encoder layer 3 (attention output, dense) of sentence-transformers/all-MiniLM-L6-v2
(Apache-2.0), with 153 tokens of six short English sentences; see ATTRIBUTION.md beside it.
"""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from ..floats import real_array

EMBEDDED: Final = "minilm_3_attention_output_dense"
ATTRIBUTION: Final = (
    "encoder layer 3, attention output, of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0); "
    "153 tokens of six short English sentences"
)


@dataclass(frozen=True)
class Layer:
    """A linear layer with inputs: activations (tokens, K), weight (N, K); it is activations @ weight.T."""

    name: str
    activations: NDArray[Any]
    weight: NDArray[Any]
    attribution: str = ""


def embedded_layer() -> Layer:
    """The layer in the package.

    >>> layer = embedded_layer()
    >>> layer.activations.shape, layer.weight.shape
    ((153, 384), (384, 384))
    """
    raw = resources.files(__package__).joinpath(f"{EMBEDDED}.npz").read_bytes()
    return _read(io.BytesIO(raw), EMBEDDED, ATTRIBUTION)


def layer_from_file(path: str | Path) -> Layer:
    """Read `activations` (tokens, K) and `weight` (N, K) from an .npz file.

    Raises ValueError in one line for a file that is not there, is no .npz, lacks an array, or whose
    arrays do not fit together or are not finite.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            return _read(file, path.stem, "")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except (zipfile.BadZipFile, EOFError, zipfile.LargeZipFile):
        raise ValueError(f"{path}: not an .npz file (numpy.savez makes one)") from None


def _read(file: IO[bytes], name: str, attribution: str) -> Layer:
    if not zipfile.is_zipfile(file):
        raise zipfile.BadZipFile
    file.seek(0)
    arrays = {}
    with np.load(file, allow_pickle=False) as npz:
        for key in ("activations", "weight"):
            if key not in npz.files:
                raise ValueError(
                    f"{name}: needs arrays 'activations' (tokens, K) and 'weight' (N, K); it has "
                    f"{', '.join(npz.files) or 'none'}"
                )
            try:
                arrays[key] = real_array(npz[key], key)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name}: array {key!r}: {error}") from None
    a, w = arrays["activations"], arrays["weight"]
    if a.ndim != 2 or w.ndim != 2 or a.shape[1] != w.shape[1] or 0 in (*a.shape, *w.shape):
        raise ValueError(
            f"{name}: activations (tokens, K) and weight (N, K) need two axes, one K, and no empty axis; "
            f"got {a.shape} and {w.shape}"
        )
    for key, array in arrays.items():
        finite = np.isfinite(array.astype(np.float64))
        if not finite.all():
            first = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise ValueError(f"{name}: {key} is {array[first]} at index {first}; figures need finite values")
    return Layer(name, a, w, attribution)
