"""Random shell scripts that end: assignments, arrays, conditions, loops, functions, and torchrun with their variables.

`python -m tests.fuzz.shell_scripts FIRST_SEED COUNT` runs them in a real bash and in the reader, and shows what differs.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random

from tests.readers.test_shell_bash import bash, reader

START = 'A=ab; B="x y"; C=a/b.c; D=3; X=(p "q r" s t); Y=(1 2 3)\n'
END = 'torchrun --num-layers 1 --hidden-size 2 "$A" $A "$B" $B "$C" $C "$D" $D "${X[@]}" ${Y[@]} "$@"\n'
ARGUMENTS = ["p 1", "t", "u/v.w"]
_VALUES = (
    "${N}", "${N:-d7}", "${N-e}", "${N:+alt}", "${#N}", "${N%.*}", "${N##*/}", "${N/a/Q}", "${N//b/}", "${N:1:2}", "${N:1}", "${N^^}",
    "${Z[0]}", "${Z[1]}", "${#Z[@]}", "${Z[*]}", "${Z[@]:1}", "$(echo v ${N})", '$(echo "${N}" | cut -d/ -f1)', "`echo q ${N}`", "$1", "$#",
    "${2:-two}", "$((3 * 5 + 3))", "$((9 % 4 << 1))", "7", "ab", "x=y",
)  # fmt: skip
_CONDITIONS = (
    '[ "${N}" = ab ]', '[ -z "${N}" ]', "[[ ${N} == a* ]]", "[[ -n ${N} && ${N} != ab ]]", "(( 4 > 2 ))", '[ "${#Z[@]}" -gt 3 ]',
    '! [ "${N}" = ab ]', "[[ ${N} =~ ^[a-z]+$ ]]", '[ 2 -lt 2 ] || [ "${N}" != 3 ]',
)  # fmt: skip


class Writer:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def script(self) -> str:
        return START + "\n".join(self.statement(0) for _ in range(self.random.randint(3, 10))) + "\n" + END

    def filled(self, text: str) -> str:
        return text.replace("N", self.random.choice("ABCD")).replace("Z", self.random.choice("XY"))

    def word(self) -> str:
        values = [self.filled(self.random.choice(_VALUES)) for _ in range(self.random.randint(1, 3))]
        kind = self.random.random()
        if kind < 0.5:
            return '"' + "".join(values).replace('"', "") + '"'
        return "'s $A*'" if kind < 0.6 else "\\ k" if kind < 0.65 else values[0]

    def words(self, least: int, most: int) -> str:
        return " ".join(self.word() for _ in range(self.random.randint(least, most)))

    def condition(self) -> str:
        return self.filled(self.random.choice(_CONDITIONS))

    def statement(self, depth: int) -> str:
        kind = self.random.randrange(12 if depth < 3 else 5)
        name, array = self.random.choice("ABCD"), self.random.choice("XY")
        inner = [self.statement(depth + 1) for _ in range(3)] if kind > 6 else []
        forms = {
            0: f"{name}={self.word()}", 1: f"{name}+={self.word()}", 2: f"{array}=({self.words(3, 4)} m n)",
            3: f"{array}+=({self.words(1, 2)})", 4: f"set -- {self.words(2, 2)} k",
            5: f"torchrun --num-layers 1 --hidden-size 2 {self.words(1, 3)} ${{{array}[@]}}",
            6: f"{self.condition()} && {name}=7",
        }  # fmt: skip
        if kind in forms:
            return forms[kind]
        if kind == 7:
            return f"if {self.condition()}; then\n{inner[0]}\nelif {self.condition()}; then\n{inner[1]}\nelse\n{inner[2]}\nfi"
        if kind == 8:
            return f"for {name} in {self.words(0, 3)}; do\n{inner[0]}\ndone"
        if kind == 9:
            return f"case {self.word()} in\n a*|b) {inner[0]} ;;\n [0-9]) {inner[1]} ;;\n *) {inner[2]} ;;\nesac"
        if kind == 10:
            return f'f() {{ local {name}=$1; {array}+=("$@" "${{{name}}}"); }}\nf {self.words(1, 2)}'
        return f"C=0; while [ $C -lt 2 ]; do C=$((C + 1)); {name}+=.; done"


def differs(seed: int, folder: Path) -> str | None:
    """The script of a seed when bash and the reader give torchrun other words, else None. Empty words are left aside:
    the reader drops those that come from variables without value."""
    text = Writer(seed).script()
    path = folder / "run.sh"
    path.write_text("set -f\n" + text)
    wanted, found = bash(path, {}, ARGUMENTS), reader(path, {}, ARGUMENTS)
    filled = [[[word for word in words if word] for words in calls] for calls in (wanted, found)]
    return None if filled[0] == filled[1] else f"{text}\nbash   {wanted}\nreader {found}\n"


def main(first: int, count: int) -> int:
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            text = differs(seed, Path(folder))
            if text is not None:
                failed += 1
                print(f"seed {seed}:\n{text}")
    print(f"{count} scripts, {failed} differ")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
