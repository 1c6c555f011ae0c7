"""Downloads against a local server: resume, checksums, broken connections, no network, archives."""

import hashlib
import http.server
import io
import tarfile
import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from dcnn import fetch as module
from dcnn.cli import data as data_command
from dcnn.errors import DcnnError, InputError
from dcnn.fetch import DATASETS, Remote, choose, fetch, md5, unpack

CONTENT = bytes(range(256)) * 5000
MD5 = hashlib.md5(CONTENT).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves CONTENT; /ranged understands Range, /whole does not, /short promises more than it sends."""

    asked: list = []

    def do_GET(self):
        wanted = self.headers.get("Range")
        Handler.asked.append((self.path, wanted))
        if self.path == "/missing":
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.path != "/whole" else 0
        if start >= len(CONTENT):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(CONTENT) - start))
        self.end_headers()
        self.wfile.write(CONTENT[start : start + 1000] if self.path == "/short" else CONTENT[start:])

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()


@pytest.fixture(autouse=True)
def _nothing_asked():
    Handler.asked.clear()


def remote(server, path="/ranged", md5=MD5, **more):
    return Remote("ethanol", "md17/file.npz", server + path, "1 MB", md5, **more)


def test_a_download_is_verified_shown_and_not_repeated(server, tmp_path):
    seen = []
    path, words = fetch(remote(server), tmp_path, lambda done, total: seen.append((done, total)))
    assert path == tmp_path / "md17" / "file.npz"
    assert path.read_bytes() == CONTENT
    assert words.endswith("MD5 as published")
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert not list(tmp_path.rglob("*.part"))
    assert "is there already" in fetch(remote(server), tmp_path)[1]
    assert len(Handler.asked) == 1


@pytest.mark.parametrize(("path", "expected"), [("/ranged", "bytes=1234-"), ("/whole", "bytes=1234-")])
def test_an_interrupted_download_goes_on_or_starts_again_where_it_cannot(server, tmp_path, path, expected):
    part = tmp_path / "md17" / "file.npz.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT[:1234])
    found, _ = fetch(remote(server, path), tmp_path)
    assert Handler.asked == [(path, expected)]
    assert md5(found) == MD5


def test_a_download_that_was_complete_is_only_verified(server, tmp_path):
    part = tmp_path / "md17" / "file.npz.part"
    part.parent.mkdir()
    part.write_bytes(CONTENT)
    assert fetch(remote(server), tmp_path)[0].read_bytes() == CONTENT


def test_a_broken_connection_is_continued_by_the_same_command(server, tmp_path):
    with pytest.raises(DcnnError, match=r"broke off after 1,000 of 1,280,000 bytes; the same command goes on"):
        fetch(remote(server, "/short"), tmp_path)
    assert fetch(remote(server), tmp_path)[0].read_bytes() == CONTENT
    assert Handler.asked[-1] == ("/ranged", "bytes=1000-")


def test_a_wrong_checksum_is_refused_and_the_file_removed(server, tmp_path):
    with pytest.raises(DcnnError, match=f"MD5 is {MD5}, published is 0000; what came was removed"):
        fetch(remote(server, md5="0000"), tmp_path)
    assert list((tmp_path / "md17").iterdir()) == []


def served(content: bytes, promise: int | None = None, kind: str = "application/octet-stream"):
    """A server that sends this for anything; without a promise it just closes the connection at the end."""

    class Once(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            if promise is not None:
                self.send_header("Content-Length", str(promise))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args):
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Once)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    return running


def npz() -> bytes:
    out = io.BytesIO()
    np.savez(out, E=np.arange(1000.0))
    return out.getvalue()


def test_without_a_published_checksum_the_found_one_is_kept(tmp_path):
    with served(npz()) as running:
        path, words = fetch(remote(f"http://127.0.0.1:{running.server_address[1]}", md5=None), tmp_path)
        running.shutdown()
    found = hashlib.md5(npz()).hexdigest()
    assert found in words
    assert path.with_name("file.npz.md5").read_text() == f"{found}  file.npz\n"


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"<!DOCTYPE html><html>Log in</html>", "text/html", r"what came \(a web page\) begins with"),
        (npz()[:-500], "application/zip", "what came is cut off"),
        (npz()[:60] + b"x" + npz()[61:], "application/zip", "damaged|cut off"),
    ],
)
def test_a_page_or_half_a_file_is_never_taken_for_data(content, kind, message, tmp_path):
    with served(content, kind=kind) as running:
        with pytest.raises(DcnnError, match=message):
            fetch(remote(f"http://127.0.0.1:{running.server_address[1]}", md5=None), tmp_path)
        running.shutdown()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("address", ["http://127.0.0.1:9/file.npz", "http://no.such.host.invalid/file.npz"])
def test_without_a_network_one_message_says_what_to_place_where(tmp_path, address):
    with pytest.raises(DcnnError) as caught:
        fetch(Remote("ethanol", "md17/file.npz", address, "1 MB"), tmp_path)
    assert address in str(caught.value)
    assert f"place it as {tmp_path / 'md17' / 'file.npz'}" in str(caught.value)


def test_a_server_that_refuses_is_quoted(server, tmp_path):
    with pytest.raises(DcnnError, match="the server answers 404"):
        fetch(remote(server, "/missing"), tmp_path)


def test_a_folder_that_cannot_be_written_is_named(server, tmp_path):
    (tmp_path / "md17").write_text("a file")
    with pytest.raises(InputError, match=r"md17: cannot be written .*another folder with -o"):
        fetch(remote(server), tmp_path)


def archive(path):
    with tarfile.open(path, "w:bz2") as tar:
        for name in ("rmd17/npz_data/rmd17_ethanol.npz", "rmd17/npz_data/rmd17_salicylic.npz", "rmd17/splits/a.csv"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tar.addfile(member, io.BytesIO(b"data"))
    return path


def test_only_the_wanted_members_of_an_archive_are_unpacked(tmp_path):
    path = archive(tmp_path / "rmd17.tar.bz2")
    (found,) = DATASETS["rmd17"]
    written = unpack(found, path, ["salicylic_acid"])
    assert sorted(p.name for p in written) == ["a.csv", "rmd17_salicylic.npz"]
    assert unpack(found, path, ["salicylic_acid"]) == written
    assert not (tmp_path / "rmd17/npz_data/rmd17_ethanol.npz").exists()
    with pytest.raises(DcnnError, match="holds none of"):
        unpack(Remote("", "", "", "", unpack=("other/",)), path, [])
    path.write_bytes(b"no archive")
    with pytest.raises(DcnnError, match="not a readable archive"):
        unpack(found, path, [])


def test_data_sets_and_parts_are_chosen_by_name():
    files, _ = choose("md17", ["ethanol", "benzene"])
    assert [f.file for f in files] == ["md17/md17_benzene2017.npz", "md17/md17_ethanol.npz"]
    assert len(choose("md17")[0]) == 8
    assert choose("rmd17", ["uracil"])[1] == ["uracil"]
    assert [f.key for f in choose("pdebench", ["advection"])[0]] == ["advection"]
    assert all(f.md5 is None or len(f.md5) == 32 for files in DATASETS.values() for f in files)
    with pytest.raises(InputError, match=r"unknown data set 'md71'; did you mean 'md17'"):
        choose("md71")
    with pytest.raises(InputError, match=r"unknown part of md17 'etanol'; did you mean 'ethanol'"):
        choose("md17", ["etanol"])
    with pytest.raises(InputError, match="one piece"):
        choose("oc22", ["ethanol"])


def test_the_command_fetches_and_unpacks(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 100_000)
    packed = archive(tmp_path / "packed.tar.bz2").read_bytes()
    monkeypatch.setitem(DATASETS, "md17", (remote(server),))
    monkeypatch.setitem(
        DATASETS, "rmd17", (Remote("", "rmd17/a.tar.bz2", server + "/archive", "", None, ("rmd17/npz_data/",)),)
    )
    monkeypatch.setenv("DCNN_DATA", str(tmp_path / "data"))
    result = CliRunner().invoke(data_command.app, ["fetch", "md17", "--molecules", "ethanol"])
    assert result.exit_code == 0, result.output
    assert "MD5 as published" in result.output
    (tmp_path / "data/rmd17").mkdir()
    (tmp_path / "data/rmd17/a.tar.bz2").write_bytes(packed)
    result = CliRunner().invoke(data_command.app, ["fetch", "rmd17"])
    assert "unpacked 2 files" in result.output
