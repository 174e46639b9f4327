"""What only its vendor can read: kept beside a message, given back to its issuer, reported where it is lost."""
