"""The kernel's own ynl tool, once for each line of standard input: NAME<TAB>ARGUMENTS.

What it says goes to NAME.kernel in the folder $PROBES. One process for all: in an
emulated guest starting Python takes longer than asking.
"""
import contextlib
import io
import os
import shlex
import sys

TOOLS = "/k/tools/net/ynl/pyynl"
SPEC = "/k/Documentation/netlink/specs/netdev.yaml"
sys.path.insert(0, TOOLS)
sys.argv = [TOOLS + "/cli.py"]
import cli  # noqa: E402  (uses the path set above)

for line in sys.stdin:
    name, words = line.rstrip("\n").split("\t")
    said = io.StringIO()
    sys.argv[1:] = ["--spec", SPEC, "--no-schema"] + shlex.split(words)
    status = 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            cli.main()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
    path = os.path.join(os.environ["PROBES"], name + ".kernel")
    with open(path, "w", encoding="utf-8") as out:
        out.write(said.getvalue() + f"exit {status}\n")
