"""A language model adds ideas to the search: it proposes recipes that no declared grid holds, and every one passes the
same rules, ledger and projection before it counts. Off unless asked for (`--agent`)."""
