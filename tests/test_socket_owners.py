"""A socket that nothing closed is shown with the test that made it."""

from __future__ import annotations

import socket

from tests.socket_owners import made_at


def test_a_report_of_an_unclosed_socket_leads_to_the_test_that_made_it() -> None:
    """The descriptor in the report is that of the socket; a report of anything else names none."""
    with socket.socket() as found:
        report = f"ResourceWarning: unclosed {found!r}"

        (shown,) = made_at(report)

    assert "test_a_report_of_an_unclosed_socket" in shown
    assert made_at(report.removeprefix("ResourceWarning")) == []
