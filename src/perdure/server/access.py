"""Who may do what: credentials, roles and limits, and the checks that every request passes first.

A credential has a name, roles, and perhaps limits to agents, owners or threads.  What lies outside the limits does not
exist for it: the answer is the one for a name that nothing has.  The name is what decisions are recorded under; no
field of a request can change it.

A browser attaches credentials to requests that other sites cause.  So the server answers only to its own host names
(rebinding), takes no change from another origin (cross-site requests), and its cookie is `HttpOnly` and
`SameSite=Strict`.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import Literal, get_args

import msgspec

from perdure.errors import Invalid
from perdure.model.names import SERVER_THREAD
from perdure.server.problems import HttpProblem
from perdure.store.thread import Thread

__all__ = [
    "LOOPBACK",
    "SERVER",
    "Access",
    "Permission",
    "Role",
    "bearer",
    "check_origin",
    "check_roles",
    "host_name",
    "is_own_host",
    "same",
]

Role = Literal["viewer", "operator", "approver", "admin"]
Permission = Literal["read", "operate", "decide", "administer"]

_PERMISSIONS: dict[str, frozenset[str]] = {
    "viewer": frozenset({"read"}),
    "operator": frozenset({"read", "operate"}),
    "approver": frozenset({"read", "decide"}),
    "admin": frozenset({"read", "operate", "decide", "administer"}),
}

SERVER = SERVER_THREAD
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_COOKIE_MAX = 8_192


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What one credential may do.  None as a limit: there is none."""

    name: str
    roles: tuple[Role, ...]
    agents: tuple[str, ...] | None = None
    owners: tuple[str, ...] | None = None
    threads: tuple[str, ...] | None = None

    def may(self, permission: Permission) -> bool:
        """True if a role of the credential has the permission."""
        return any(permission in _PERMISSIONS[role] for role in self.roles)

    @property
    def is_limited(self) -> bool:
        """True if some threads do not exist for the credential."""
        return (self.agents, self.owners, self.threads) != (None, None, None)

    def sees(self, id: str, agent: str, owner: str | None) -> bool:
        """True if a thread is within the limits; the server's own is there for admins only."""
        return (
            (id != SERVER or self.may("administer"))
            and _within(id, self.threads)
            and _within(agent, self.agents)
            and (owner in self.owners if self.owners is not None else True)
        )

    def sees_thread(self, thread: Thread) -> bool:
        """True if a thread is within the limits."""
        return self.sees(thread.id, thread.agent, thread.owner)

    def lists_thread(self, thread: Thread, *, agent: str | None) -> bool:
        """True if a list has a thread that is within the limits; the server's own is in lists that ask for its agent."""
        return (thread.id != SERVER or agent == SERVER) and self.sees_thread(thread)

    def sees_owner(self, owner: str) -> bool:
        """True if the memory of an owner is within the limits: it spans agents and threads, so a limit to those hides it."""
        return self.agents is None and self.threads is None and _within(owner, self.owners)

    def sees_agent(self, agent: str) -> bool:
        """True if an agent is within the limits."""
        return _within(agent, self.agents) and self.owners is None and self.threads is None


def _within(name: str, limit: tuple[str, ...] | None) -> bool:
    return limit is None or name in limit


def check_roles(roles: Iterable[str]) -> tuple[Role, ...]:
    """Return roles without repetition; raises `Invalid` if there is none, or one is unknown."""
    known = get_args(Role)
    found = tuple(dict.fromkeys(roles))
    if not found or not set(found) <= set(known):
        raise Invalid(
            f"roles are one or more of {', '.join(known)}, not {found!r}; nothing was done.",
            code="role_unknown",
            roles=found,
        )
    return found  # pyright: ignore[reportReturnType]


def same(given: str, secret: str) -> bool:
    """True if two secrets are equal; the time it takes does not tell how much of them is."""
    return hmac.compare_digest(given.encode(), secret.encode())


def bearer(headers: Mapping[str, str], cookie: str) -> str | None:
    """Return the secret of a request: its bearer token, else the cookie of that name; None if it has neither."""
    given = headers.get("authorization")
    if given is not None:
        scheme, _, secret = given.partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise HttpProblem(
                401,
                "credential_invalid",
                "the Authorization header has no bearer token; nothing was done.",
                advice="Send `Authorization: Bearer KEY`.",
                headers={"WWW-Authenticate": "Bearer"},
            )
        return secret.strip()
    jar = SimpleCookie()
    try:
        jar.load(headers.get("cookie", "")[:_COOKIE_MAX])
    except CookieError:
        return None
    return jar[cookie].value if cookie in jar else None


def host_name(host: str) -> str:
    """Return a host as addresses name it: an IPv6 address is in brackets."""
    return f"[{host.lower()}]" if ":" in host and not host.startswith("[") else host.lower()


@lru_cache(maxsize=256)
def is_own_host(host: str, hosts: tuple[str, ...]) -> bool:
    """True if a Host header names one of the server's own names, with any port."""
    name = host.lower()
    if not name.endswith("]"):
        head, colon, port = name.rpartition(":")
        name = head if colon and port.isdecimal() else name
    return any(own in ("*", name) for own in hosts)


def check_origin(headers: Mapping[str, str], host: str, *, is_safe: bool) -> None:
    """Refuse a request that another site caused; `is_safe`: it only reads."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    own = (f"http://{host}".lower(), f"https://{host}".lower())
    is_foreign = origin is not None and origin.lower() not in own
    if (is_foreign and not is_safe) or (
        site == "cross-site" and "cookie" in headers and "authorization" not in headers
    ):
        raise HttpProblem(
            403,
            "cross_site",
            "a page of another site sent this request; nothing was done.",
            advice="Behind a proxy, pass the Host header on unchanged, so that it fits the Origin.",
        )
