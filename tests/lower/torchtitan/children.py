"""One forked child for every line of standard input: what a question changes in the process is gone with it."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = dict[str, Any]


def answer_each(answer: Callable[[Answer], Answer], failed: Callable[[BaseException], Answer], died: Answer) -> None:
    """Print the answer to every question as a line: that of `answer`, what `failed` makes of its exception, or `died`."""
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                found = answer(json.loads(line))
            except BaseException as error:
                found = failed(error)
            with os.fdopen(write, "wb") as pipe:
                pipe.write(json.dumps(found, default=str).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        print(text.decode() or json.dumps(died), flush=True)
