"""One module per kind of generated page; each has `pages()`: texts by their path in docs/generated."""
