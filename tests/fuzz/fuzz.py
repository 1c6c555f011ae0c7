"""A mutational fuzzer of every reader: a damaged file is read or refused (InputError), quickly and in little memory.

python tests/fuzz/fuzz.py --minutes 10              ten CPU minutes a reader (`make fuzz`)
python tests/fuzz/fuzz.py --mutations 100 npz lmdb   so many mutations of some readers (the run in CI)

Each mutation is read in a child process that is killed after LIMIT_S CPU seconds. What it does wrong is one of: another
exception (traceback), the end of the process (crash), time (slow), memory (memory), a file written (wrote).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from hostile import HOSTILE
from seeds import READERS, Reader, mutate

from dcnn.errors import InputError

LIMIT_S = 2.0  # CPU seconds for one file
LIMIT_MB = 200  # resident memory beyond what the process has before it
SILENT_S = 120  # wall-clock seconds after which a child is given up even if it does not use the processor
GOOD = ("read", "refused")
KINDS = (*GOOD, "traceback", "crash", "slow", "memory", "wrote")
ADDRESS_SPACE = 8 << 30  # bytes: a last resort for the machine


def peak_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmHWM:")[1].split()[0]) / 1024


def resident_mb() -> float:
    text = Path("/proc/self/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1024


def one(reader: Reader, file: Path) -> tuple[str, str]:
    """(what came of it, details)."""
    before = sorted(file.parent.iterdir())
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    resident = resident_mb()
    found, details = "read", ""
    try:
        reader.read(file)
    except InputError as error:
        found = "refused"
        if len(str(error)) > 2000:
            found, details = "traceback", f"a message of {len(str(error))} characters"
    except Exception as error:
        found, details = "traceback", f"{type(error).__name__}: {error}"[:300]
    if peak_mb() - resident > LIMIT_MB:
        found, details = "memory", f"{peak_mb() - resident:.0f} MB, {details}"
    after = sorted(file.parent.iterdir())
    if after != before:
        found, details = "wrote", ", ".join(p.name for p in after if p not in before)
    return found, details


def child(reader: Reader, content: Callable[[int], bytes], numbers: range, folder: Path, pipe: int) -> None:
    """Reads mutation after mutation and reports each; the parent sees where it stopped."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    with os.fdopen(pipe, "w") as report:
        for number in numbers:
            file = folder / reader.file
            file.write_bytes(content(number))
            signal.setitimer(signal.ITIMER_PROF, LIMIT_S)
            found, details = one(reader, file)
            signal.setitimer(signal.ITIMER_PROF, 0)
            report.write(json.dumps([number, found, details]) + "\n")
            report.flush()
    os._exit(0)


def run(
    reader: Reader,
    content: Callable[[int], bytes],
    mutations: int | None = None,
    minutes: float = 0,
    tell: Callable[[int, str], None] = lambda number, what: None,
) -> Counter[str]:
    """Counts of what came of the files that ``content`` makes; ``tell`` hears of each that went wrong."""
    counts: Counter[str] = Counter()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    number, spent = 0, 0.0
    while (number < mutations) if mutations is not None else (spent < 60 * minutes and wrong(counts) < 200):
        last = mutations if mutations is not None else number + 2000
        shutil.rmtree(folder)
        folder.mkdir()
        incoming, outgoing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(incoming)
            try:
                child(reader, content, range(number, last), folder, outgoing)
            finally:
                os._exit(70)
        os.close(outgoing)
        signal.signal(signal.SIGALRM, lambda *_, process=process: os.kill(process, signal.SIGKILL))
        with os.fdopen(incoming) as reports:
            signal.alarm(SILENT_S)
            for line in reports:
                signal.alarm(SILENT_S)
                number, found, details = json.loads(line)
                counts[found] += 1
                if found not in GOOD:
                    tell(number, f"{found}: {details}")
                number += 1
            signal.alarm(0)
        _, status, usage = os.wait4(process, 0)
        spent += usage.ru_utime + usage.ru_stime
        if status != 0:
            ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
            found = "slow" if ended in (signal.SIGPROF, signal.SIGKILL) else "crash"
            counts[found] += 1
            tell(number, f"{found}: {signal.Signals(ended).name if ended else os.WEXITSTATUS(status)}")
            number += 1
    shutil.rmtree(folder, ignore_errors=True)
    return counts


def wrong(counts: Counter[str]) -> int:
    return counts.total() - sum(counts[kind] for kind in GOOD)


def fuzz(reader: Reader, arguments: argparse.Namespace) -> Counter[str]:
    """Mutations of one reader; its sound files must be read first."""
    with tempfile.TemporaryDirectory() as folder:
        seeds = reader.seeds(Path(folder))
        for seed in seeds:
            (Path(folder) / reader.file).write_bytes(seed)
            reader.read(Path(folder) / reader.file)

    def content(number: int) -> bytes:
        return mutate(seeds, reader, random.Random(f"{reader.name} {arguments.seed} {number}"))

    def tell(number: int, what: str) -> None:
        print(f"{reader.name} {arguments.seed}:{number} {what}", flush=True)
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            (arguments.keep / f"{reader.name}-{arguments.seed}-{number}-{reader.file}").write_bytes(content(number))

    return run(reader, content, arguments.mutations, arguments.minutes or 0, tell)


def hostile() -> int:
    """How many of the hostile files were not refused."""
    accepted = 0
    for name, (reader, make) in HOSTILE.items():
        with tempfile.TemporaryDirectory() as folder:
            content = make(Path(folder))
        counts = run(READERS[reader], lambda number, content=content: content, 1, tell=lambda _, what: print(what))
        print(f"{name} ({len(content):,} bytes): {', '.join(counts)}", flush=True)
        accepted += counts["refused"] != 1
    return accepted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("readers", nargs="*", help=f"of {', '.join(READERS)}; default: all")
    parser.add_argument("--minutes", type=float, help="CPU minutes a reader")
    parser.add_argument("--mutations", type=int, help="instead: so many mutations a reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hostile", action="store_true", help="the files of hostile.py, each of which must be refused")
    parser.add_argument("--keep", type=Path, help="folder for the files that were not refused as they should")
    arguments = parser.parse_args()
    if arguments.hostile:
        return min(hostile(), 1)
    if (arguments.minutes is None) == (arguments.mutations is None):
        parser.error("give --minutes or --mutations")
    failed = 0
    print("| reader | mutations | " + " | ".join(KINDS) + " |")
    print("| --- " * (len(KINDS) + 2) + "|")
    for name in arguments.readers or READERS:
        counts = fuzz(READERS[name], arguments)
        print(f"| {name} | {counts.total():,} | " + " | ".join(f"{counts[k]:,}" for k in KINDS) + " |", flush=True)
        failed += wrong(counts)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
