"""Running an agent on a thread, so that nothing is lost and nothing happens twice."""
