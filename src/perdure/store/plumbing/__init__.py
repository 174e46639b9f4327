"""What the store's objects share: directory, outbox, resources and guards."""
