"""One round of tool calls: plan, execute, settle, commit, recover."""
