"""A worker without a compiler, and so without torch: `fake_worker.py LOG BEHAVIOUR...`.

LOG gets the number of each such process. The first one has the first behaviour, and so on; the last
behaviour is for all later ones.
"""

import contextlib
import importlib.util
import io
import json
import os
import pickle
import signal
import socket
import sys
import time
from pathlib import Path

_PATH = Path(__file__).parents[2] / "torch_shark" / "workers" / "protocol.py"
_SPEC = importlib.util.spec_from_file_location("protocol", _PATH)
protocol = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(protocol)
Kind = protocol.Kind

MLIR = b"module {}"
INTERFACE = {"inputs": [], "outputs": [], "scalars": [], "function": "f"}
INTERFACE |= {"used_inputs": [], "in_place": [], "forms": [], "guard": "", "size": None}
HEAD = {"interface": json.dumps(INTERFACE), "reason": ""}
ARTIFACT = json.dumps(HEAD).encode() + b"\nvmfb"


class Anything:
    """What the objects in a request are here."""

    def __init__(self, *_):
        pass

    def __setstate__(self, _):
        pass


class Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        return Anything


def targets(payload):
    return len(Unpickler(io.BytesIO(payload)).load()[1])


channel = socket.socket(fileno=os.dup(0))


def send(kind, payload=b""):
    protocol.send(channel, kind, payload)


def answer(payload):
    send(Kind.LOWERED, MLIR)
    for _ in range(targets(payload)):
        send(Kind.COMPILED, ARTIFACT)


def refuse_one(payload):
    send(Kind.LOWERED, MLIR)
    send(Kind.REFUSED, b"not this one")
    for _ in range(targets(payload) - 1):
        send(Kind.COMPILED, ARTIFACT)


def refuse(_):
    send(Kind.REFUSED, b"not this region")


def answer_at_length(payload):
    time.sleep(0.3)
    answer(payload)


def end_with(signal_number):
    def end(_):
        send(Kind.LOWERED, MLIR)
        send(Kind.COMPILED, ARTIFACT)
        print("on stdout")
        os.write(1, b"free(): invalid\n pointer\n")
        os.kill(os.getpid(), signal_number)

    return end


def exit_139(_):
    send(Kind.LOWERED, MLIR)
    os._exit(139)


def crash_in_tracing(_):
    os.kill(os.getpid(), signal.SIGSEGV)


def crash_at_the_second(payload, seen=[]):  # noqa: B006 (it is kept)
    seen.append(payload)
    if len(seen) == 2:
        os._exit(139)
    os.write(2, b"said of the first\n")
    answer(payload)


def hang(_):
    send(Kind.LOWERED, MLIR)
    time.sleep(600)


def garbage(_):
    channel.sendall(b"\0" * 100)


def no_artifact(_):
    send(Kind.LOWERED, MLIR)
    send(Kind.COMPILED, b"{}\n")


def too_early(_):
    send(Kind.COMPILED, ARTIFACT)


BEHAVIOURS = {
    "segv": end_with(signal.SIGSEGV),
    "killed": end_with(signal.SIGKILL),
} | {
    f.__name__: f
    for f in (
        answer,
        answer_at_length,
        crash_at_the_second,
        crash_in_tracing,
        exit_139,
        garbage,
        hang,
        no_artifact,
        refuse,
        refuse_one,
        too_early,
    )
}


def main():
    log, *behaviours = sys.argv[1:]
    with open(log, "a") as file:
        file.write(f"{os.getpid()}\n")
    started = len(Path(log).read_text().splitlines())
    behaviour = behaviours[min(started, len(behaviours)) - 1]
    if behaviour == "no_start":
        sys.exit("no module named torch")
    send(Kind.READY)
    if behaviour == "leaves":
        os._exit(0)
    if behaviour == "deaf":
        time.sleep(600)
    while True:
        BEHAVIOURS[behaviour](protocol.receive(channel)[1])


with contextlib.suppress(EOFError):
    main()
