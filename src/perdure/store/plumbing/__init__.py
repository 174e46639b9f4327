"""What the store's objects share: directory, outbox, handles and fences."""
