"""The nouns: plain data, pydantic and the standard library only, no behaviour beyond what follows from the data."""
