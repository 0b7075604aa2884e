# SPDX-License-Identifier: Apache-2.0
"""The headers of a whole model, however many files it is in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from .gguf_header import read_gguf_header
from .header import FileError, Header
from .safetensors_header import MOST_HEADER, read_json, read_safetensors_header
from .window import Window

INDEX: Final = "model.safetensors.index.json"
MOST_SHARDS: Final = 10_000
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


def read_headers(path: str | Path) -> tuple[Header, ...]:
    """The header of every file of a model, in order.

    `path` is a .gguf file (of a split model: any of its parts), a .safetensors file, the index of a sharded
    set (`model.safetensors.index.json`), or a folder with one of these. Raises FileError if it is none of
    them, if a part is not there, or if parts and index disagree.
    """
    path = Path(path)
    if path.is_dir():
        return read_headers(_in_folder(path))
    if path.name.endswith(".index.json"):
        return _indexed(path)
    with Window(path) as window:
        magic = window.take(min(4, window.size), "the first bytes")
    if magic == b"GGUF" or path.suffix == ".gguf":
        return _split(path)
    if path.suffix == ".safetensors":
        return (read_safetensors_header(path),)
    raise FileError(
        f"{path}: expected a .gguf or .safetensors file, an index of shards, or a folder with one"
    )


def read_json_file(path: Path) -> dict[str, Any]:
    """A small JSON file, such as an index or a config.json, whose keys are all different; or FileError."""
    with Window(path) as window:
        if window.size > MOST_HEADER:
            raise FileError(f"{path}: has {window.size} bytes, expected at most {MOST_HEADER}")
        return read_json(path, window.take(window.size, "the file").lstrip(), "the file")


def _in_folder(folder: Path) -> Path:
    if (folder / INDEX).exists():
        return folder / INDEX
    found = sorted([*folder.glob("*.safetensors"), *folder.glob("*.gguf")])
    first = [p for p in found if not (m := _SPLIT.search(p.name)) or int(m[1]) == 1]
    if len(first) != 1:
        names = f"{len(first)} of them ({', '.join(p.name for p in first[:3])}…)" if first else "none"
        raise FileError(f"{folder}: expected one model, as {INDEX}, .safetensors or .gguf; it has {names}")
    return first[0]


def _indexed(path: Path) -> tuple[Header, ...]:
    listed = read_json_file(path).get("weight_map")
    if not isinstance(listed, dict) or not listed or not all(isinstance(v, str) for v in listed.values()):
        raise FileError(f"{path}: expected a weight_map from names of tensors to names of files")
    shards = sorted(set(listed.values()))
    for shard in shards:
        if shard != Path(shard).name or not shard.endswith(".safetensors"):
            raise FileError(f"{path}: names the file {shard!r:.80}, expected a .safetensors file beside it")
    headers = _all((path.parent / shard for shard in shards), read_safetensors_header, len(shards), path)
    for header in headers:
        expected = {name for name, shard in listed.items() if shard == header.path.name}
        if wrong := expected ^ header.by_name.keys():
            name = min(wrong)
            where = "is not in it" if name in expected else "is in it and not in the index"
            raise FileError(f"{header.path}: tensor {name!r:.80} {where}, against {path.name}")
    return headers


def _split(path: Path) -> tuple[Header, ...]:
    header = read_gguf_header(path)
    count = header.metadata.get("split.count", 1)
    if type(count) is not int or not 0 <= count <= MOST_SHARDS:
        raise FileError(f"{path}: split.count is {count!r:.40}, expected a number of files")
    if count <= 1:
        return (header,)
    match = _SPLIT.search(path.name)
    if not match or int(match[2]) != count:
        raise FileError(f"{path}: is part of {count}, expected a name that ends in -00001-of-{count:05}.gguf")
    stem = path.name[: match.start()]
    names = [path.with_name(f"{stem}-{n + 1:05}-of-{count:05}.gguf") for n in range(count)]
    headers = _all(names, read_gguf_header, count, path)
    total = headers[0].metadata.get("split.tensors.count")
    found = [t.name for h in headers for t in h.tensors]
    if total is not None and total != len(found):
        raise FileError(f"{path}: its parts have {len(found)} tensors, split.tensors.count says {total}")
    if len(set(found)) < len(found):
        raise FileError(f"{path}: a tensor is in two of the parts")
    return headers


def _all(
    paths: Iterable[Path], read: Callable[[Path], Header], count: int, whole: Path
) -> tuple[Header, ...]:
    found = []
    for n, path in enumerate(paths):
        if not path.exists():
            raise FileError(f"{path}: not there; it is file {n + 1} of {count} of {whole.name}")
        found.append(read(path))
    return tuple(found)
