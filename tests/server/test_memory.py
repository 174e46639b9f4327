"""What a person changes in a memory over HTTP: a correction, a forgetting, an undo, and the history that each leaves."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.store.store import Store
from tests.memory.remembering import by_letters, remembering, tidying
from tests.server.client import Client, key, serving

ITEM = "/v1/memory/ann/items/{id}"


@pytest.fixture
def item(store: Store) -> str:
    """The id of an item of Ann's, which a tool has said and which ends."""
    added = store.memory("ann").add(
        "Ann lives in Porto.", kind="episodic", scope="home", trust="tool", expires=timedelta(days=9)
    )
    return added.id


def changes(client: Client, query: str = "") -> list[list[Any]]:
    """What was done to Ann's memory, to which text, and who did it, newest first."""
    found = client.get(f"/v1/memory/ann/log{query}").json
    return [[each["did"], each["text"], each["by"]] for each in found["commits"]]


def test_a_person_corrects_an_item_and_its_past_stays(client: Client, store: Store, item: str) -> None:
    """Only text and author change, and the history names the credential."""
    before = store.memory("ann").get(item)
    ann = Client(client.port, key(store, "ann", "operator", owners=["ann"]))

    reply = ann.ask("PUT", ITEM.format(id=item), {"text": "Ann lives in Lisbon."})

    now = store.memory("ann").get(item)
    assert reply.status == 200, reply.body
    assert reply.json["text"] == now.text == "Ann lives in Lisbon."
    assert (now.kind, now.scope, now.expires_at, now.trust) == (
        "episodic",
        "home",
        before.expires_at,
        "user",
    )
    assert changes(ann, f"?item={item}") == [
        ["edited", "Ann lives in Lisbon.", "ann"],
        ["added", "Ann lives in Porto.", None],
    ]


def test_one_item_is_read_now_and_at_a_moment(client: Client, store: Store, item: str) -> None:
    """What was forgotten is read at a commit of the log; now it is not there, and an unknown moment is none."""
    memory, one = store.memory("ann"), ITEM.format(id=item)
    now = client.get(one)
    (added,) = client.get("/v1/memory/ann/log").json["commits"]
    memory.edit(item, "Ann lives in Lisbon.")
    edited = client.get(one).json["text"]
    memory.forget(item)

    then = client.get(f"{one}?at={added['commit']}")
    gone = [client.get(f"{one}{query}") for query in ("", "?at=HEAD", "?at=feedfeed")]

    assert (now.status, now.json["text"], now.json["kind"]) == (200, "Ann lives in Porto.", "episodic")
    assert now.json == then.json
    assert now.headers["etag"] != then.headers["etag"]
    assert edited == "Ann lives in Lisbon."
    assert [(each.status, each.json["code"]) for each in gone] == [
        *[(404, "memory_item_not_found")] * 2,
        (404, "revision_not_found"),
    ]


def test_a_memory_is_listed_at_a_moment(client: Client, store: Store, item: str) -> None:
    """With kind and scope, in pages; a search has no moment and no filter of what expired."""
    memory = store.memory("ann")
    memory.add("Ann likes trams.", id="trams")
    memory.forget(item)
    memory.add("Ann likes boats.", id="boats")

    def listed(query: str) -> list[str]:
        return [each["id"] for each in client.get(f"/v1/memory/ann?{query}").json["items"]]

    first = client.get("/v1/memory/ann?at=HEAD~2&limit=1").json

    assert (
        listed("at=HEAD~2")
        == [item, "trams"]
        == [first["items"][0]["id"], *listed(f"at=HEAD~2&after={first['next']}")]
    )
    assert listed("at=HEAD~2&kind=episodic&scope=home") == [item]
    assert listed("at=HEAD") == ["boats", "trams"]
    for wrong, code in (
        ("q=trams&at=HEAD", "options_conflict"),
        ("at=HEAD&expired=true", "options_conflict"),
        ("similarity_min=0.5", "query_invalid"),
    ):
        reply = client.get(f"/v1/memory/ann?{wrong}")
        assert (reply.status, reply.json["code"]) == (422, code)


def test_a_client_names_the_id_and_the_source_of_an_item(client: Client, store: Store) -> None:
    """Under an id that is there the words are replaced and the rest stays; an end of null is removed."""
    first = client.post(
        ITEMS,
        {
            "id": "seat",
            "text": "aisle",
            "kind": "preference",
            "trust": "tool",
            "expires_at": "2190-01-31T09:00:00Z",
        },
    )
    second = client.post(ITEMS, {"id": "seat", "text": "window", "trust": "model"})
    third = client.post(ITEMS, {"id": "seat", "text": "middle", "expires_at": None})

    assert [(each.status, each.json["known"], each.json["replaced"]) for each in (first, second, third)] == [
        (201, False, None),
        (200, False, "aisle"),
        (200, False, "window"),
    ]
    items = [each.json["item"] for each in (first, second, third)]
    assert {(each["id"], each["kind"]) for each in items} == {("seat", "preference")}
    assert [each["trust"] for each in items] == ["tool", "model", "user"]
    assert [each["expires_at"] for each in items] == [*["2190-01-31T09:00:00.000000Z"] * 2, None]
    assert [each.text for each in store.memory("ann").items()] == ["middle"]
    assert client.post(ITEMS, {"id": "../up", "text": "x"}).json["code"] == "item_id_invalid"


def test_an_item_is_erased_by_an_admin_alone(client: Client, store: Store, item: str) -> None:
    """Its words are gone at every moment, and threads that hold them are named; an operator is refused, and it stays."""
    ann = Client(client.port, key(store, "ann", "operator", owners=["ann"]))
    root = Client(client.port, key(store, "root", "admin", owners=["ann"]))
    noted = remembering(store, "t1", "Ann lives in Faro.", name="noted")
    (*_, added) = ann.get(f"/v1/memory/ann/log?item={item}").json["commits"]

    refused = ann.post(f"{ITEM.format(id=item)}/erase")
    erased = root.post(f"{ITEM.format(id=item)}/erase")
    held = root.post(f"{ITEM.format(id='noted')}/erase").json
    missing = root.post(f"{ITEM.format(id='never')}/erase")
    then = root.get(f"{ITEM.format(id=item)}?at={added['commit']}")

    assert (refused.status, refused.json["code"]) == (403, "role_insufficient")
    assert (erased.status, erased.json["item"], erased.json["threads"]) == (200, item, []), erased.body
    assert erased.json["objects"] > 0
    assert (held["threads"], held["left_alone"]) == ([noted.id], None)
    assert (missing.status, missing.json["code"]) == (404, "memory_item_not_found")
    assert (then.status, then.json["code"]) == (410, "forgotten")
    assert changes(ann, "?limit=2") == [["erased", None, "root"]] * 2


def test_an_item_of_a_thread_is_kept(client: Client, store: Store) -> None:
    """The undo of its turn no longer takes it away; it still says where it came from."""
    thread = remembering(store, "t1", "Ann lives in Faro.", name="noted")

    kept = client.post(f"{ITEM.format(id='noted')}/keep", Idempotency_Key="k1")
    thread.undo()

    assert (kept.status, kept.json["source"]["thread"]) == (200, "t1"), kept.body
    assert client.get(ITEM.format(id="noted")).json["text"] == "Ann lives in Faro."
    assert changes(client)[0][0] == "kept"
    assert client.post(f"{ITEM.format(id='never')}/keep").status == 404


def test_a_search_finds_what_is_similar_enough(tmp_path: Path) -> None:
    """The least similarity is the client's to choose; one beyond 1 is refused."""
    with perdure.open(tmp_path / "vectors.db", embed=by_letters) as store:
        store.memory("ann").add("aaab", id="near")
        store.memory("ann").add("bbba", id="far")
        with serving(store) as client:
            found = [
                client.get(f"/v1/memory/ann?q=aaaa{query}").json["found"]
                for query in ("", "&similarity_min=0.9")
            ]
            wrong = client.get("/v1/memory/ann?q=aaaa&similarity_min=2")

    assert [[each["item"]["id"] for each in each] for each in found] == [["near", "far"], ["near"]]
    assert (wrong.status, wrong.json["code"]) == (422, "similarity_invalid")


def test_an_edit_changes_what_it_names(client: Client, item: str) -> None:
    """Null and left out differ for the end: null removes it; without words their source stays."""
    put = "PUT", ITEM.format(id=item)
    before = client.ask(*put, {}).json

    kind = client.ask(*put, {"kind": "semantic", "scope": "user"}).json
    later = client.ask(*put, {"expires_at": "2190-01-31T09:00:00Z"}).json
    endless = client.ask(*put, {"expires_at": None, "text": None}).json
    said = client.ask(*put, {"text": "Ann lives in Lisbon.", "trust": "model"}).json

    assert {each for each in kind if kind[each] != before[each]} == {"kind", "scope", "at", "reference"}
    assert (later["expires_at"], later["trust"]) == ("2190-01-31T09:00:00.000000Z", "tool")
    assert (endless["expires_at"], endless["text"], endless["trust"]) == (None, "Ann lives in Porto.", "tool")
    assert (said["text"], said["trust"], said["kind"]) == ("Ann lives in Lisbon.", "model", "semantic")
    assert client.ask(*put, {"trust": "system"}).json["code"] == "body_invalid"
    assert client.ask("PUT", ITEM.format(id="never"), {"text": "x"}).status == 404


def test_a_person_pins_an_item(client: Client, item: str) -> None:
    """An addition or an edit says so, and other edits leave the pin as it is."""
    put = "PUT", ITEM.format(id=item)

    added = client.ask("POST", "/v1/memory/ann/items", {"text": "likes short answers", "pinned": True}).json
    pinned = client.ask(*put, {"pinned": True}).json
    edited = client.ask(*put, {"scope": "home"}).json
    listed = client.ask("GET", "/v1/memory/ann").json["items"]
    unpinned = client.ask(*put, {"pinned": False}).json

    assert [each["pinned"] for each in (added["item"], pinned, edited, unpinned)] == [True, True, True, False]
    assert [each["pinned"] for each in listed] == [True, True]


def test_a_person_forgets_an_item_and_takes_it_back(client: Client, store: Store, item: str) -> None:
    """An undo brings the item back, a redo forgets it again; a second forgetting finds nothing."""
    memory = store.memory("ann")

    remembered = list[list[str]]()
    for method, path in (
        ("DELETE", ITEM.format(id=item)),
        ("POST", "/v1/memory/ann/undo"),
        ("POST", "/v1/memory/ann/redo"),
    ):
        reply = client.ask(method, path, None if method == "DELETE" else {})
        assert (reply.status, reply.json["items"]) == (200, len(list(memory.items()))), reply.body
        remembered.append([each.text for each in memory.items()])

    assert remembered == [[], ["Ann lives in Porto."], []]
    assert [each[0] for each in changes(client)] == ["forgotten", "added"]
    again = client.ask("DELETE", ITEM.format(id=item))
    assert (again.status, again.json["code"]) == (404, "memory_item_not_found")


def test_a_person_puts_one_item_back(client: Client, store: Store, item: str) -> None:
    """As it was before its last change, or at a commit of the log; what was done to other items since stays."""
    ann = Client(client.port, key(store, "ann", "operator", owners=["ann"]))
    ann.ask("PUT", ITEM.format(id=item), {"text": "Ann lives in Lisbon."})
    store.memory("ann").add("Ann likes trams.")
    restore = f"{ITEM.format(id=item)}/restore"

    before = ann.post(restore)
    (*_, porto) = ann.get(f"/v1/memory/ann/log?item={item}").json["commits"]
    ann.ask("DELETE", ITEM.format(id=item))
    then = ann.post(restore, {"at": porto["commit"], "expires": "30d"})

    now = store.memory("ann").get(item)
    assert (before.status, before.json["text"], before.json["trust"]) == (200, "Ann lives in Porto.", "tool")
    assert (then.status, then.json["text"], then.json["expires_at"] > before.json["expires_at"]) == (
        *(200, now.text),
        True,
    )
    assert (now.kind, now.scope, now.trust) == ("episodic", "home", "tool")
    assert [each[0] for each in changes(ann)] == [
        "restored",
        "forgotten",
        "restored",
        "added",
        "edited",
        "added",
    ]
    assert changes(ann)[0] == ["restored", "Ann lives in Porto.", "ann"]


def test_an_item_that_cannot_be_put_back_is_refused_with_a_reason(
    client: Client, store: Store, item: str
) -> None:
    """Unknown, without another value, ended, erased: a status and a code each, and what to send instead."""
    memory = store.memory("ann")
    for id in ("ended", "erased"):
        memory.add("Ann is here.", id=id, expires=timedelta(milliseconds=1) if id == "ended" else None)
    memory.erase("erased")
    head = memory.head

    replies = [client.post(f"{ITEM.format(id=id)}/restore") for id in ("never", item, "ended", "erased")]

    assert [(each.status, each.json["code"]) for each in replies] == [
        (404, "memory_item_not_found"),
        (404, "nothing_to_restore"),
        (422, "item_expired"),
        (410, "forgotten"),
    ]
    assert "`at`" in replies[1].json["advice"]
    assert "`expires`" in replies[2].json["advice"]
    assert "erased" in replies[3].json["detail"]
    assert memory.head == head


def test_an_item_that_expired_is_listed_and_brought_back(client: Client, store: Store) -> None:
    """The problem says when it expired; the list of what expired has it, and a search takes no such filter."""
    memory = store.memory("ann")
    memory.add("Ann is here.", id="ended", expires=timedelta(milliseconds=1))
    memory.add("Ann lives in Porto.", id="stays")

    gone = client.ask("PUT", ITEM.format(id="ended"), {"text": "Ann is there."})
    listed = client.get("/v1/memory/ann?expired=true").json["items"]
    wrong = client.get("/v1/memory/ann?expired=true&q=here")
    client.post(f"{ITEM.format(id='ended')}/restore", {"expires": "30d"})

    assert (gone.status, gone.json["code"]) == (404, "memory_item_expired")
    assert "`expires`" in gone.json["advice"]
    assert [each["id"] for each in listed] == ["ended"]
    assert (wrong.status, wrong.json["code"]) == (422, "options_conflict")
    assert client.get("/v1/memory/ann?expired=true").json["items"] == []


def test_a_repeated_restore_is_one_and_a_stale_one_is_none(client: Client, store: Store, item: str) -> None:
    """A client that sends it again with its key gets the same answer; with the tag of an older list nothing is done."""
    store.memory("ann").forget(item)
    seen = client.get("/v1/memory/ann/log").headers["etag"]
    restore = f"{ITEM.format(id=item)}/restore"

    replies = [client.post(restore, Idempotency_Key="k1") for _ in range(2)]
    stale = client.post(restore, If_Match=seen)

    assert [each.status for each in replies] == [200, 200], replies[1].body
    assert replies[0].json == replies[1].json
    assert replies[0].headers["etag"] != seen
    assert stale.status == 412
    assert [each[0] for each in changes(client)] == ["restored", "forgotten", "added"]


def test_an_undo_takes_back_only_the_change_that_the_client_has_seen(
    client: Client, store: Store, item: str
) -> None:
    """The tag of the list of changes names the head; control: with the new tag the undo is made."""
    seen = client.get("/v1/memory/ann/log").headers["etag"]
    store.memory("ann").add("Ann likes trams.")

    refused = client.post("/v1/memory/ann/undo", If_Match=seen)
    done = client.post("/v1/memory/ann/undo", If_Match=client.get("/v1/memory/ann/log").headers["etag"])

    assert (refused.status, done.status) == (412, 200), refused.body
    assert [each.id for each in store.memory("ann").items()] == [item]


def test_an_undo_of_an_erasure_says_how_many_changes_it_takes(
    client: Client, store: Store, item: str
) -> None:
    """Refused alone; with the number of the answer the change before it is taken back."""
    store.memory("ann").add("Ann likes trams.", id="trams")
    store.memory("ann").erase(item)

    refused = client.post("/v1/memory/ann/undo")
    done = client.post("/v1/memory/ann/undo", {"changes": refused.json["facts"]["changes"]})

    assert (refused.status, refused.json["code"]) == (409, "erasure_not_undone")
    assert "`changes`" in refused.json["advice"]
    assert (done.status, done.json["items"]) == (200, 0), done.body


def test_the_moves_of_a_memory_are_listed_in_pages(client: Client, store: Store, item: str) -> None:
    """Undos and redos with the credential that made them; a cursor leads on, another text is none."""
    ann = Client(client.port, key(store, "ann", "operator", owners=["ann"]))
    for act in ("undo", "redo"):
        ann.post(f"/v1/memory/ann/{act}")

    first = ann.get("/v1/memory/ann/moves?limit=2").json
    rest = ann.get(f"/v1/memory/ann/moves?after={first['next']}").json

    moves = [(each["act"], each["by"], each["changes"], each["change"]["items"]) for each in first["moves"]]
    assert moves == [(act, "ann", 1, [item]) for act in ("redo", "undo")]
    assert [(each["act"], each["version"], each["from"]) for each in rest["moves"]] == [("commit", 1, None)]
    assert (first["more"], rest["more"], "next" in rest) == (True, False, False)
    assert ann.get("/v1/memory/ann/moves?after=x").json["code"] == "cursor_invalid"


def test_a_repeated_correction_is_one(client: Client, item: str) -> None:
    """A client that lost the answer sends the request again, with its key."""
    replies = [
        client.ask(
            "PUT", ITEM.format(id=item), {"text": "Ann lives in Faro."}, headers={"Idempotency-Key": "k1"}
        )
        for _ in range(2)
    ]

    assert [each.status for each in replies] == [200, 200], replies[1].body
    assert replies[0].json == replies[1].json
    assert len(changes(client)) == 2


def test_the_last_changes_are_listed_as_far_as_they_are_asked_for(
    client: Client, store: Store, item: str
) -> None:
    """Of all items or of one; control: with enough room there are no more."""
    store.memory("ann").add("Ann likes trams.")

    last = client.get("/v1/memory/ann/log?limit=1").json
    every = client.get("/v1/memory/ann/log?limit=2").json

    assert ([each["text"] for each in last["commits"]], last["more"]) == (["Ann likes trams."], True)
    assert (len(every["commits"]), every["more"]) == (2, False)
    assert [each[1] for each in changes(client, f"?item={item}")] == ["Ann lives in Porto."]


def test_what_one_call_did_to_several_items_is_listed_item_by_item(client: Client, store: Store) -> None:
    """Each with its own `did` and `text`, and one commit; an undo names all the items that it changed back."""
    memory = store.memory("ann")
    memory.add("likes tea", id="old")
    memory.add("likes coffee", id="older")
    tidying(store)

    listed = client.get("/v1/memory/ann/log?limit=4").json
    undone = client.post("/v1/memory/ann/undo").json

    assert [(each["did"], each["item"], each["text"]) for each in listed["commits"]] == [
        ("added", "two", "likes lakes"),
        ("added", "one", "likes seas"),
        ("forgotten", "old", "likes tea"),
        ("edited", "older", "likes cocoa"),
    ]
    assert (len({each["commit"] for each in listed["commits"]}), listed["more"]) == (1, True)
    assert undone["changed"] == ["two", "one", "old", "older"]


def test_a_search_by_words_alone_says_so(client: Client, tmp_path: Path, item: str) -> None:
    """The answer says how meaning is searched, too; control: with an embedding function nothing is missing."""
    by_words = client.get("/v1/memory/ann?q=Porto").json
    with perdure.open(tmp_path / "vectors.db", embed=by_letters) as store:
        store.memory("ann").add("Ann lives in Porto.")
        with serving(store) as other:
            by_meaning = other.get("/v1/memory/ann?q=Porto").json

    assert (by_words["legs"], len(by_words["found"])) == (["text"], 1)
    assert "`perdure serve --embed minilm`" in by_words["missing"]
    assert (by_meaning["legs"], by_meaning["missing"]) == (["text", "vector"], None)


@pytest.mark.parametrize("limit", [{"owners": ["bob"]}, {"threads": ["chat"]}, {"agents": ["assistant"]}])
def test_a_memory_outside_the_limits_does_not_exist(
    client: Client, store: Store, item: str, limit: dict[str, list[str]]
) -> None:
    """It is neither read nor changed; the answer does not tell whether the owner has one."""
    mine = Client(client.port, key(store, "me", "operator", **limit))

    for method, rest, body in (
        ("GET", "", None),
        ("GET", "/log", None),
        ("GET", "/moves", None),
        ("POST", "/items", {"text": "x"}),
        ("PUT", f"/items/{item}", {"text": "x"}),
        ("DELETE", f"/items/{item}", None),
        ("POST", f"/items/{item}/restore", {}),
        ("POST", f"/items/{item}/keep", {}),
        ("GET", f"/items/{item}", None),
        ("POST", "/undo", {}),
        ("POST", "/redo", {}),
    ):
        replies = [mine.ask(method, f"/v1/memory/{owner}{rest}", body) for owner in ("ann", "zoe")]
        told = [(each.status, each.json["code"]) for each in replies]
        assert told == [(404, "owner_not_found")] * 2, (method, rest)
    assert [each.text for each in store.memory("ann").items()] == ["Ann lives in Porto."]


ITEMS = "/v1/memory/ann/items"


def test_a_person_adds_an_item(client: Client, store: Store) -> None:
    """Text, kind, scope and end are as they were given, and the history names the credential; the owner is a new one."""
    ann = Client(client.port, key(store, "ann", "operator", owners=["ann"]))
    asked = {"text": "Ann flies on Friday.", "kind": "episodic", "scope": "trip"}

    reply = ann.post(ITEMS, asked | {"expires_at": "2190-01-31T09:00:00+01:00"})

    (item,) = store.memory("ann").items()
    assert (reply.status, reply.json["known"], reply.json["item"]["id"]) == (201, False, item.id), reply.body
    assert (item.text, item.kind, item.scope, item.trust) == (*asked.values(), "user")
    assert reply.json["item"]["expires_at"] == "2190-01-31T08:00:00.000000Z"
    assert changes(ann) == [["added", "Ann flies on Friday.", "ann"]]


def test_an_item_that_says_the_same_is_answered(client: Client, item: str) -> None:
    """The second request adds nothing; control: of another scope it adds one."""
    first, again, other = (
        client.post(ITEMS, {"text": "Ann likes trams.", "scope": scope}) for scope in ("user", "user", "home")
    )

    assert [(each.status, each.json["known"]) for each in (first, again, other)] == [
        (201, False),
        (200, True),
        (201, False),
    ]
    assert first.json["item"]["id"] == again.json["item"]["id"] != other.json["item"]["id"]


def test_an_item_that_a_model_noted_is_confirmed(client: Client, store: Store) -> None:
    """The answer says that it was there, and whose words it had; control: nothing is confirmed twice."""
    noted = store.memory("ann").add("likes trams", trust="model")

    first, again = (client.post(ITEMS, {"text": "Likes trams"}) for _ in range(2))

    assert [(each.status, each.json["known"], each.json["confirmed"]) for each in (first, again)] == [
        (200, True, "model"),
        (200, True, None),
    ]
    assert (first.json["item"]["id"], first.json["item"]["trust"]) == (noted.id, "user")


def test_a_repeated_addition_is_one(client: Client, store: Store) -> None:
    """A client that lost the answer sends the request again, with its key; control: another key adds another item."""
    asked = {"text": "Ann flies on Friday.", "expires_at": "2190-01-31T09:00:00Z"}

    ids = [client.post(ITEMS, asked, Idempotency_Key=name).json["item"]["id"] for name in ("k1", "k1", "k2")]

    assert ids[0] == ids[1] != ids[2]
    assert [each.id for each in store.memory("ann").items()] == ids[1:]


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"text": " \n"}, "item_empty"),
        ({"text": "x" * 70_000}, "item_too_large"),
        ({"kind": "vague"}, "body_invalid"),
        ({"scope": "My Project"}, "scope_invalid"),
        ({"expires_at": "2001-01-31T09:00:00Z"}, "expiry_in_past"),
        ({"expires_at": "9999-12-31T09:00:00Z"}, "expiry_invalid"),
        ({"expires_at": "2190-01-31T09:00:00"}, "body_invalid"),  # nobody knows in which zone
        ({"trust": "system"}, "body_invalid"),  # a client is a user
    ],
)
def test_what_cannot_be_remembered_is_refused(
    client: Client, store: Store, wrong: dict[str, str], code: str
) -> None:
    """The problem says what is wrong, and that nothing was done."""
    reply = client.post(ITEMS, {"text": "Ann likes trams."} | wrong)

    assert (reply.status, reply.json["code"]) == (422, code)
    assert "nothing was" in reply.json["detail"]
    assert store.memory("ann").head.commit is None
