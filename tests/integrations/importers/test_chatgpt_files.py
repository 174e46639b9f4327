"""Pictures and files beside the conversations of ChatGPT's export, in a directory and in the archive as it comes."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from perdure import Store
from perdure.errors import Corrupt, Invalid, PerdureError
from perdure.integrations.importers import ImportReport, import_sessions
from perdure.integrations.importers.exports import files as export_files
from perdure.model.message import File, Image, Message
from tests.coded import raises
from tests.integrations.importers.counts import sound
from tests.integrations.importers.test_chatgpt import node

PNG = b"\x89PNG\r\n\x1a\n" + b"png" * 9
WEBP = b"RIFF\x24\x00\x00\x00WEBPVP8 " + b"webp" * 9
WAV = b"RIFF\x24\x00\x00\x00WAVEfmt " + b"wave" * 9
PDF = b"%PDF-1.7\n" + b"pdf" * 9


def pointer(id: str, kind: str = "image_asset_pointer", scheme: str = "file-service") -> dict[str, Any]:
    """A part that names a file."""
    return {"content_type": kind, "asset_pointer": f"{scheme}://{id}", "size_bytes": 7}


VOICE = {
    "content_type": "real_time_user_audio_video_asset_pointer",
    "frames_asset_pointers": [],
    "audio_asset_pointer": pointer("file_00aa", "audio_asset_pointer", "sediment"),
}
SAID = {"content_type": "audio_transcription", "text": "What is it?", "direction": "in"}

# Each kind of file: the node that names it, and under which names exports have had it.
KINDS: dict[str, tuple[Any, dict[str, bytes], str]] = {
    "an upload": (
        node("n", None, "user", pointer("file-Ab1"), "And this?", kind="multimodal_text"),
        {"file-Ab1-my photo.png": PNG},
        "image/png",
    ),
    "a generated picture": (
        node("n", None, "tool", pointer("file-Cd2"), kind="multimodal_text"),
        {"dalle-generations/file-Cd2-8a2f.webp": WEBP},
        "image/webp",
    ),
    "a file without its ending": (
        node("n", None, "user", pointer("file_00ef", scheme="sediment"), kind="multimodal_text"),
        {"file_00ef.dat": PNG, "conversation_asset_file_names.json": b'{"file_00ef.dat": "x.png"}'},
        "image/png",
    ),
    "an attachment": (
        node("n", None, "user", "Read.", attachments=[{"id": "file-Pd3", "name": "a.pdf", "mime_type": "application/pdf"}]),
        {"file-Pd3.dat": PDF},
        "application/pdf",
    ),
    "a voice": (
        node("n", None, "user", SAID, VOICE, kind="multimodal_text"),
        {"c-1/audio/file_00aa-1b.wav": WAV},
        "audio/wav",
    ),
}  # fmt: skip


def export(folder: Path, *nodes: tuple[str, dict[str, Any]], files: dict[str, bytes]) -> Path:
    """Write an export with one conversation into a directory."""
    mapping: dict[str, Any] = {}
    for id, each in nodes:
        mapping[id] = each | {"parent": next(reversed(mapping), None)}
    whole = [{"title": "T", "mapping": mapping, "current_node": nodes[-1][0], "conversation_id": "c-1"}]
    for name, body in {"conversations.json": json.dumps(whole).encode(), **files}.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(body)
    return folder


def zipped(folder: Path, wrapper: str = "", how: int = zipfile.ZIP_DEFLATED) -> Path:
    """Put a directory into an archive beside it."""
    place = folder.with_suffix(".zip")
    with zipfile.ZipFile(place, "w", how) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                archive.write(file, wrapper + file.relative_to(folder).as_posix())
    return place


def media(store: Store) -> list[tuple[str, str, bytes]]:
    """The role, the type and the bytes of each file in the thread, in messages and in results."""
    thread = store.thread("chatgpt:c-1")
    found: list[tuple[str, str, bytes]] = []
    for entry in thread.transcript():
        for block in _blocks(entry.message):
            if isinstance(block, Image | File):
                body = b"".join(thread.artifacts.get(block.uri))
                found.append((entry.role, block.mime_type, body))
    return found


def _blocks(message: Message) -> list[Any]:
    return [*message.content, *(block for result in message.tool_results for block in result.content)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_zipped", [False, True])
def test_a_file_of_an_export_is_an_artifact_of_its_message(
    store: Store, tmp_path: Path, kind: str, *, is_zipped: bool
) -> None:
    """Under each of the names that exports have had; a second import adds nothing, and nothing is unpacked."""
    named, files, media_type = KINDS[kind]
    place = export(tmp_path / "export", node("u0", None, "user", "Hi."), named, files=files)
    place = zipped(place, wrapper="export/") if is_zipped else place
    there = sorted(tmp_path.rglob("*"))

    (session,) = import_sessions(store, place).sessions
    again = import_sessions(store, place)

    ((role, found, body),) = media(store)
    assert (found, body) == (media_type, next(iter(files.values())))
    assert role == ("assistant" if kind == "a generated picture" else "user")
    assert (session.losses, again.messages, again.sessions[0].edited) == ((), 0, ())
    assert (sound(store), sorted(tmp_path.rglob("*"))) == ([], there)


def test_a_picture_in_the_result_of_a_call_is_in_the_result(store: Store, tmp_path: Path) -> None:
    """A further message of the tool with a picture is the assistant's, which showed it; its words are counted."""
    place = export(
        tmp_path,
        node("c", None, "assistant", '{"prompt": "x"}', to="dalle.text2im", kind="code"),
        node("r", None, "tool", pointer("file-A"), "Shown.", kind="multimodal_text"),
        node("s", None, "tool", pointer("file-B"), "Shown again.", kind="multimodal_text"),
        files={"file-A.dat": PNG, "file-B.dat": WEBP},
    )

    (session,) = import_sessions(store, place).sessions

    assert [(role, body) for role, _, body in media(store)] == [("tool", PNG), ("assistant", WEBP)]
    assert session.unmapped == {"message of a tool that answers no call": 1}
    assert sound(store) == []


def test_what_a_file_was_called_is_beside_its_message(store: Store, tmp_path: Path) -> None:
    """As the index of the export, or its name, has it."""
    place = export(
        tmp_path,
        node("a", None, "user", pointer("file-A"), pointer("file-B"), kind="multimodal_text"),
        files={"file-A.dat": PNG, "file-B-b.png": PNG, "conversation_asset_file_names.json": b'{"file-A.dat": "dir/a.jpg"}'},
    )  # fmt: skip

    import_sessions(store, place)

    (entry,) = store.thread("chatgpt:c-1").transcript()
    assert json.loads(entry.message.vendor_metadata or "")["chatgpt"][0]["files"] == ["a.jpg", "b.png"]


@pytest.mark.parametrize(
    "named", ["file-None", "../../secret", "file-service://../file-x/../../secret", "file-A/../../secret"]
)
def test_a_file_that_is_not_there_is_a_loss(store: Store, tmp_path: Path, named: str) -> None:
    """A name that leads out of the export finds nothing; the words are imported, and other files are passed over."""
    (tmp_path / "secret").write_bytes(PNG)
    (tmp_path / "out").write_bytes(PNG)
    there = export(
        tmp_path / "export",
        node("u", None, "user", pointer(named), "What?", kind="multimodal_text"),
        files={"user.json": b"{}"},
    )
    (there / "file-A").symlink_to(tmp_path / "out")

    report = import_sessions(store, there)

    ((loss,),) = [session.losses for session in report.sessions]
    assert (loss.where, loss.what, loss.kind) == ("node u", "image_asset_pointer", "dropped")
    assert media(store) == []
    assert [Path(each).name for each in report.others_first] == ["user.json"]


def test_files_that_are_kept_are_not_passed_over(store: Store, tmp_path: Path) -> None:
    """Nor is the index with their names; one that no message names is."""
    place = export(
        tmp_path,
        node("u", None, "user", pointer("file-A"), kind="multimodal_text"),
        files={"file-A.dat": PNG, "file-B.dat": PNG, "conversation_asset_file_names.json": b"{}"},
    )
    (place / "conversation_asset_file_names.json").write_text('{"file-A.dat": "a.png"}')

    report = import_sessions(store, place)

    assert [Path(each).name for each in report.others_first] == ["file-B.dat"]


def test_files_that_a_later_export_does_not_have_are_no_edit(store: Store, tmp_path: Path) -> None:
    """Neither in a message nor in a result; other words are, and so is a file that was not there before."""
    nodes = [
        node("c", None, "assistant", "draw", to="dalle.text2im", kind="code"),
        node("r", None, "tool", pointer("file-A"), kind="multimodal_text"),
        node("u", None, "user", pointer("file-B"), "What?", kind="multimodal_text"),
    ]
    whole = {"file-A.dat": PNG, "file-B.dat": PNG}
    other = node("u", None, "user", pointer("file-B"), "Who?", kind="multimodal_text")

    full = _again(store, export(tmp_path / "full", *nodes, files=whole))
    bare = _again(store, export(tmp_path / "bare", *nodes, files={}))
    edited = _again(store, export(tmp_path / "edited", *nodes[:2], other, files={}))
    store.thread("chatgpt:c-1").rm()
    first = _again(store, export(tmp_path / "first", *nodes, files={}))
    late = _again(store, export(tmp_path / "late", *nodes, files=whole))

    assert [each.sessions[0].edited for each in (full, bare, first)] == [(), (), ()]
    assert (edited.sessions[0].edited, late.sessions[0].edited) == (("node u",), ("node r", "node u"))


def _again(store: Store, place: Path) -> ImportReport:
    return import_sessions(store, place)


def bomb(path: Path) -> None:
    """A document that is a thousand times larger than its compressed bytes."""
    body = b'[{"mapping": {}, "author": 1}' + b" " * 30_000_000 + b"]"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", body)


def many_bombs(path: Path) -> None:
    """Many members, each within the limit of one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(9):
            archive.writestr(f"{number}.json", b" " * 1_000_000)


def overlapping(path: Path) -> None:
    """Members that share their compressed bytes: the directory names one place many times."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("conversations.json", os.urandom(9_000))
        info = archive.infolist()[0]
        for number in range(9):
            copy = zipfile.ZipInfo(f"{number}.json")
            copy.file_size, copy.compress_size, copy.CRC = info.file_size, info.compress_size, info.CRC
            copy.header_offset = info.header_offset
            archive.filelist.append(copy)


def lying(path: Path) -> None:
    """A document whose size in the directory is smaller than what its bytes unpack to."""
    body = b'[{"mapping": {}, "author": 1}' + b" " * 3_000_000 + b"]"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", body)
        archive.infolist()[0].file_size = 100


def other_compression(path: Path) -> None:
    """A document in a compression whose pieces have no limit."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("conversations.json", b'[{"mapping": {}, "author": 1}]')


def leading_out(path: Path) -> None:
    """Documents whose names lead out of the archive."""
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("../conversations.json", "/tmp/conversations.json", "a/../../conversations.json"):
            archive.writestr(name, b'[{"mapping": {}, "author": 1}]')


def cut_off(path: Path) -> None:
    """An archive that was not downloaded to its end."""
    overlapping(path)
    path.write_bytes(path.read_bytes()[:4_000])


REFUSED: dict[str, tuple[Any, type[PerdureError], str]] = {
    "a bomb": (bomb, Invalid, "import_archive_refused"),
    "many bombs": (many_bombs, Invalid, "import_archive_refused"),
    "members that overlap": (overlapping, Invalid, "import_archive_refused"),
    "a size that is a lie": (lying, Corrupt, "import_archive_unreadable"),
    "another compression": (other_compression, Invalid, "import_archive_refused"),
    "names that lead out": (leading_out, Invalid, "import_archive_without_export"),
    "an archive that is cut off": (cut_off, Corrupt, "import_archive_unreadable"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_an_archive_that_claims_too_much_or_is_damaged_is_refused(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """In one line; nothing is written, in the store or beside the archive."""
    monkeypatch.setattr(export_files, "_MEMBER_FREE_BYTES", 2_000_000)
    monkeypatch.setattr(export_files, "_FREE_BYTES", 40_000_000 if kind == "a bomb" else 3_000_000)
    write, error, code = REFUSED[kind]
    place = tmp_path / "export.zip"
    write(place)

    with raises(error, code, source=str(place)):
        import_sessions(store, place)

    assert (list(store.threads()), list(tmp_path.iterdir())) == ([], [place])


def test_an_archive_of_anything_else_is_refused(store: Store, tmp_path: Path) -> None:
    """Also one with sessions of another tool; in a directory it is passed over."""
    (tmp_path / "in").mkdir()
    line = {"type": "user", "uuid": "u", "sessionId": "s", "message": {"role": "user", "content": "Hi"}}
    (tmp_path / "in" / "s.jsonl").write_text(json.dumps(line))
    (tmp_path / "in" / "s.json").write_text('{"words": "no export"}')
    place = zipped(tmp_path / "in")

    with raises(Invalid, "import_archive_without_export", source=str(place)):
        import_sessions(store, place)
    report = import_sessions(store, tmp_path)

    assert str(place) in report.others_first
    assert [each.thread for each in report.sessions] == ["claude-code:s"]


def test_a_file_in_an_archive_that_is_damaged_is_a_loss(store: Store, tmp_path: Path) -> None:
    """The words beside it are imported."""
    there = export(
        tmp_path / "in",
        node("u", None, "user", pointer("file-A"), "What?", kind="multimodal_text"),
        files={"file-A.dat": PNG * 50},
    )
    place = zipped(there, how=zipfile.ZIP_STORED)
    place.write_bytes(place.read_bytes().replace(b"pngpngpng", b"pngpngpnG", 1))

    (session,) = import_sessions(store, place).sessions

    assert [(loss.where, loss.what) for loss in session.losses] == [("node u", "file-A.dat")]
    assert [entry.text for entry in store.thread("chatgpt:c-1").transcript()] == ["What?"]
