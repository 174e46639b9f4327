"""Protocols of existing chat clients on top of a thread: what a run does, translated into the events of each.

`run_parts` reads a run of any process, from any point on; `ai_sdk` and `ag_ui` are pure translations of what it
reads, and of what their clients send.
"""
