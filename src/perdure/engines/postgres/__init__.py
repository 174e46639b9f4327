"""A store on a PostgreSQL server."""

from __future__ import annotations

from perdure.engines.postgres.engine import PostgresEngine, open_postgres

__all__ = ["PostgresEngine", "open_postgres"]
