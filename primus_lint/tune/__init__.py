"""From findings and from the search to a better recipe: space, search, rewrite."""
