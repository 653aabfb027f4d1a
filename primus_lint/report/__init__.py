"""Output: one file a format, each `write(out, report)`; what several of them share in `bundle`, `groups`, `places`."""
