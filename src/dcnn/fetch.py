"""Public data sets by name: where they are, and a download that resumes and is verified."""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dcnn.errors import DcnnError, InputError, unknown

CHUNK = 1 << 20
TIMEOUT = 30  # seconds without an answer

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Remote:
    """One file: what it is for (a molecule, a PDE), its place below the data folder, its address, its checksum.

    md5 is None where nobody publishes one: the checksum of what came is then written beside the file.
    `unpack` lists the members of an archive that are needed, with {key} for the wanted molecule.
    """

    key: str
    file: str
    url: str
    size: str
    md5: str | None = None
    unpack: tuple[str, ...] = ()


def _md17(molecule: str, name: str, size: str) -> Remote:
    file = f"md17_{name}.npz"
    return Remote(molecule, f"md17/{file}", f"http://www.quantum-machine.org/gdml/data/npz/{file}", size)


def _pdebench(problem: str, file: str, number: int, md5: str, size: str) -> Remote:
    return Remote(
        problem, f"pdebench/{file}", f"https://darus.uni-stuttgart.de/api/access/datafile/{number}", size, md5
    )


_RMD17 = Remote(
    "",
    "rmd17/rmd17.tar.bz2",
    "https://archive.materialscloud.org/records/pfffs-fff86/files/rmd17.tar.bz2",
    "1.07 GB",
    "cb1a927628d96f2e966025da4fb63d18",
    ("rmd17/npz_data/rmd17_{key}.npz", "rmd17/splits/"),
)
_FRAMES = {  # frames and atoms give the size: 48 bytes an atom, 8 an energy
    "aspirin": ("aspirin", "220 MB"),
    "benzene": ("benzene2017", "370 MB"),
    "ethanol": ("ethanol", "250 MB"),
    "malonaldehyde": ("malonaldehyde", "440 MB"),
    "naphthalene": ("naphthalene", "290 MB"),
    "salicylic_acid": ("salicylic", "250 MB"),
    "toluene": ("toluene", "320 MB"),
    "uracil": ("uracil", "80 MB"),
}
SHORT = {"salicylic_acid": "salicylic"}  # how the files call it

#: MD5 sums: PDEBench's own list, the OC22 page of fairchem, for rMD17 what public repositories repeat. MD17 has none.
DATASETS: dict[str, tuple[Remote, ...]] = {
    "md17": tuple(_md17(molecule, name, f"about {size}") for molecule, (name, size) in _FRAMES.items()),
    "rmd17": (_RMD17,),
    "oc22": (
        Remote(
            "",
            "oc22/s2ef_total_train_val_test_lmdbs.tar.gz",
            "https://dl.fbaipublicfiles.com/opencatalystproject/data/oc22/s2ef_total_train_val_test_lmdbs.tar.gz",
            "20 GB, 71 GB unpacked",
            "ebea523c6f8d61248a37b4dd660b11e6",
            ("",),
        ),
    ),
    "pdebench": (
        _pdebench(
            "advection", "1D_Advection_Sols_beta0.1.hdf5", 255672, "b4be2fc3383f737c76033073e6d2ccfb", "about 8 GB"
        ),
        _pdebench(
            "compressible",
            "1D_CFD_Rand_Eta1.e-8_Zeta1.e-8_periodic_Train.hdf5",
            135485,
            "ad22fe08b8abc721179dbb34f2cc8b2a",
            "about 12 GB",
        ),
        _pdebench(
            "diffusion_reaction", "2D_diff-react_NA_NA.h5", 133017, "b8d0b86064193195ddc30c33be5dc949", "about 13 GB"
        ),
    ),
}
_ARCHIVED = {"rmd17": tuple(_FRAMES)}


def choose(dataset: str, wanted: Sequence[str] | None = None) -> tuple[list[Remote], list[str]]:
    """(files, keys) of a data set; `wanted` names molecules or PDEs, None takes all."""
    if dataset not in DATASETS:
        raise unknown("data set", dataset, DATASETS)
    files = DATASETS[dataset]
    keys = [remote.key for remote in files if remote.key] or list(_ARCHIVED.get(dataset, ()))
    for name in wanted or ():
        if not keys:
            raise InputError(f"{dataset} comes in one piece; leave {name!r} out")
        if name not in keys:
            raise unknown(f"part of {dataset}", name, keys)
    kept = [key for key in keys if wanted is None or key in wanted]
    return [remote for remote in files if not remote.key or remote.key in kept], kept


def fetch(remote: Remote, folder: Path, watch: Watch = lambda done, total: None) -> tuple[Path, str]:
    """Downloads a file into `folder` unless it is there; returns its path and a line on what was done.

    The download goes to FILE.part, goes on from there after an interruption, is verified, and then renamed.
    `watch` is called with the bytes done and in all (as many, if the server does not say).
    """
    target = folder / remote.file
    if target.exists():
        return target, f"{target}: is there already"
    part = target.with_name(target.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{part.parent}: cannot be written ({error.strerror}); give another folder with -o") from None
    _download(remote, part, target, watch)
    found = md5(part)
    if remote.md5 is not None and found != remote.md5:
        part.unlink()
        raise DcnnError(
            f"{target}: MD5 is {found}, published is {remote.md5}; what came was removed, fetch it again ({remote.url})"
        )
    if remote.md5 is None:
        _check_kind(part, target, remote)
    part.replace(target)
    if remote.md5 is not None:
        return target, f"{target}: MD5 as published"
    target.with_name(target.name + ".md5").write_text(f"{found}  {target.name}\n")
    return target, f"{target}: MD5 {found} (no checksum is published; kept beside the file)"


def _download(remote: Remote, part: Path, target: Path, watch: Watch) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(remote.url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            have = have if response.status == 206 else 0  # a server may send everything again
            length = response.headers.get("Content-Length")
            total = have + int(length) if length else 0
            with part.open("ab" if have else "wb") as file:
                while block := response.read(CHUNK):
                    file.write(block)
                    have += len(block)
                    watch(have, max(total, have))
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing is left to send: all of it is here
            return
        raise DcnnError(_by_hand(remote, target, f"the server answers {error.code} {error.reason}")) from None
    except http.client.HTTPException as error:
        raise DcnnError(f"{remote.url}: broke off ({error}); the same command goes on from there") from None
    except OSError as error:  # no network, no such host, a time-out
        raise DcnnError(_by_hand(remote, target, str(getattr(error, "reason", error)))) from None
    if have < total:
        raise DcnnError(
            f"{remote.url}: broke off after {have:,} of {total:,} bytes; the same command goes on from there"
        )


MAGIC = {".npz": b"PK", ".gz": b"\x1f\x8b", ".bz2": b"BZh", ".hdf5": b"\x89HDF", ".h5": b"\x89HDF"}


def _check_kind(part: Path, target: Path, remote: Remote) -> None:
    """Refuses what is not the kind of file its name says: a page of the server's, half an archive."""
    with part.open("rb") as file:
        begin = file.read(512)
    wanted = MAGIC.get(target.suffix, b"")
    problem = "" if begin.startswith(wanted) else f"begins with {begin[:20]!r}"
    if not problem and target.suffix == ".npz":
        try:
            with zipfile.ZipFile(part) as archive:
                problem = f"{damaged} is damaged" if (damaged := archive.testzip()) else ""
        except zipfile.BadZipFile:
            problem = "is cut off"
    if problem:
        page = " (a web page)" if b"<html" in begin.lower() or b"<!doctype" in begin.lower() else ""
        part.unlink()
        raise DcnnError(
            f"{remote.url}: what came{page} {problem}, it is no {target.suffix} file; it was removed, fetch it again"
        )


def _by_hand(remote: Remote, target: Path, reason: str) -> str:
    return (
        f"{remote.url} cannot be had from here ({reason}). Where there is a network, download it ({remote.size}) "
        f"and place it as {target.absolute()}, then run the same command again"
    )


def md5(path: Path) -> str:
    """The MD5 of a file, read a piece at a time."""
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            digest.update(block)
    return digest.hexdigest()


def unpack(remote: Remote, archive: Path, keys: Sequence[str]) -> list[Path]:
    """The wanted members of an archive, written beside it; those that are there are kept."""
    wanted = {pattern.format(key=SHORT.get(key, key)) for pattern in remote.unpack for key in keys or [""]}
    written = []
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if not member.isfile() or not any(member.name.startswith(start) for start in wanted):
                    continue
                path = archive.parent / member.name
                if not path.exists() or path.stat().st_size != member.size:
                    tar.extract(member, archive.parent, filter="data")
                written.append(path)
    except (tarfile.TarError, EOFError) as error:
        raise DcnnError(f"{archive}: not a readable archive ({error}); remove it and fetch it again") from None
    if not written:
        raise DcnnError(f"{archive}: holds none of {', '.join(sorted(wanted))}")
    return written
