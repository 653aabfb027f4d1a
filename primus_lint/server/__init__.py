"""The language server: what an editor asks about the file in its buffer. Only this package imports pygls."""
