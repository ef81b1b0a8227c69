"""Everything that knows one training library: a room each, reached through `backends.base`."""
