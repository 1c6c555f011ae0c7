"""Large files are read once: their frames go to a folder of flat arrays that the next run on the same files maps."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dcnn.atoms.data.fingerprint import fingerprint
from dcnn.atoms.data.packed import FORMAT, SUFFIX, PackedFrames, pack
from dcnn.atoms.dataset import Dataset
from dcnn.errors import InputError
from dcnn.progress import progress


def cached(files: Sequence[Path], options: Mapping[str, Any], folder: Path, read: Callable[[], Dataset]) -> Dataset:
    """The frames of files as ``read()`` gives them, from the cache or by one pass with a progress bar.

    The cache belongs to the content of the files and to the options they were read with. Of several processes that
    want it, one makes it and the others wait.
    """
    identity = json.dumps([FORMAT, fingerprint(files), dict(options)], sort_keys=True, default=str)
    key = hashlib.blake2b(identity.encode(), digest_size=10).hexdigest()
    place = folder / f"{files[0].stem}-{key}{SUFFIX}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f".{place.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            dataset = read()
            with progress(
                f"reading {files[0].name}" + (f" and {len(files) - 1} more" * (len(files) > 1)), "frames"
            ) as show:
                pack(dataset.everything(), place, key, show)
    frames = PackedFrames.open(place)
    if frames.layout.get("key") != key:
        raise InputError(f"{place}: a cache of other files, or of other options; delete it, and it is made anew")
    return frames.dataset()
