"""Programs that want points without an answer, and small exercises for them. Used by `test_cheats.py` and others.

A text may use what `str.format`-like marks stand for: «answer» is a file with the answer that belongs to the grader,
«port» a server on this machine that tells it, «target» a file that must not appear.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import torch

from lockstep.exercises import registry
from lockstep.exercises.exercise import Case, Exercise, Mistake, on_ranks
from lockstep.exercises.judge import all_of, same_traffic, same_value
from lockstep.exercises.observe import Call, Simulate


def scaled(x, k):
    return x * k + 1


def scaled_stub(x, k):
    raise NotImplementedError("x times k, plus 1")


def cases(rng):
    for n in (2, 3, 5, 7):
        yield Case(f"{n} numbers", (torch.tensor(rng.normal(size=n)), int(rng.integers(2, 99))))


SCALED = Exercise(
    id="05.91", title="Scaled", function="scaled", asks="x times k, plus 1.", points=4, reference=scaled,
    also_right=(), stub=scaled_stub, cases=cases, observe=Call(), judge=same_value(), hints=("Times k.",),
    mistakes=(Mistake("forgets one", lambda x, k: x * k, "The 1 is missing."),),
)  # fmt: skip


def total(comm, x):
    others = [rank for rank in range(comm.size) if rank != comm.rank]
    parts = [torch.empty_like(x) for _ in others]
    comm.exchange([(x, rank) for rank in others], [(part, rank) for part, rank in zip(parts, others, strict=True)])
    return sum(parts, x.clone())


def total_stub(comm, x):
    raise NotImplementedError("the sum over all ranks")


def rank_cases(rng):
    for ranks in (2, 3):
        each = [(torch.tensor(rng.integers(0, 99, 3), dtype=torch.float32),) for _ in range(ranks)]
        yield on_ranks(ranks, each=each)


TOTAL = Exercise(
    id="05.92", title="Total", function="total", asks="The sum, sent once to everyone.", points=2, reference=total,
    also_right=(), stub=total_stub, cases=rank_cases, observe=Simulate(), judge=all_of(same_value(), same_traffic()),
    forbidden=("comm.all_reduce",), hints=("Send it.",),
    mistakes=(Mistake("keeps its own", lambda comm, x: x, "Nothing was sent."),),
)  # fmt: skip


@cache
def brief(id, cases=2):
    """An exercise of a lab with the first cases of each draw, and no known mistakes, which take seconds to try."""
    exercise = registry.find(id)

    def first(rng):
        return list(exercise.cases(rng))[:cases]

    first.__module__ = exercise.cases.__module__  # the course's own, so that `check` shows them
    return replace(exercise, cases=first, mistakes=())


TWICE = "def total(comm, x):\n    y = sum(comm.all_gather(x[None]))\n    comm.all_gather(x[None])\n    return y\n"


@dataclass(frozen=True)
class Cheat:
    """verdicts: what may become of it. ranks: whether it is about `total`. endless: it takes all the time that it gets."""

    name: str
    text: str
    verdicts: tuple[str, ...] = ("wrong", "crashed")
    ranks: bool = False
    endless: bool = False


def body(lines: str, before: str = "") -> str:
    """A program whose `scaled` has these lines."""
    inside = "".join(f"    {line}\n" for line in lines.strip("\n").splitlines())
    return f"{before}\ndef scaled(x, k):\n{inside}"


KILLED = ("wrong", "crashed", "timed out", "unstable", "out of memory")
CHEATS = (
    # objects
    Cheat("an object equal to everything", body("return Same()", """
class Same:
    def __eq__(self, other): return True
    __ne__ = lambda self, other: False
    __len__ = lambda self: 10**6
    __float__ = lambda self: 1.0
    dtype, shape, ndim = property(lambda s: s), property(lambda s: s), 0
""")),
    Cheat("a subclass of tensor whose comparisons lie", body("return x.as_subclass(Right)", """
import torch
class Right(torch.Tensor):
    @classmethod
    def __torch_function__(cls, f, types, args=(), kwargs=None): return True
""")),
    Cheat("an object that says it is a tensor", body("return Fake()", """
import torch
class Fake:
    __class__ = torch.Tensor
    def __getattr__(self, name): return torch.ones(3)
""")),
    Cheat("a pickle that would run in the grader", body("return Bomb()", """
import os
class Bomb:
    def __reduce__(self): return os.system, ("touch «target»",)
""")),
    Cheat("an error whose words blow up", body("raise Bad()", """
class Bad(Exception):
    def __str__(self): raise SystemExit(0)
""")),
    Cheat("a list that holds itself", body("y = []\ny.append(y)\nreturn y")),
    Cheat("a list nested ten thousand deep", body("y = x\nfor _ in range(10000): y = [y]\nreturn y")),
    # patches
    Cheat("torch.equal and its kin patched", body("return x * 0", """
import torch
torch.equal = torch.allclose = torch.isclose = lambda *a, **k: True
torch.Tensor.equal = torch.Tensor.__eq__ = lambda *a: True
""")),
    Cheat("numpy's comparisons patched", body("return x * 0", "import numpy\nnumpy.allclose = numpy.array_equal = lambda *a, **k: True")),
    Cheat("the plain data patched", body("return x * 0", """
import lockstep.exercises.plain as plain, lockstep.exercises.observe as observe
observe.plain = plain.plain = lambda value, depth=0: "passed"
""")),
    Cheat("the protocol patched", body("return x * 0", """
import lockstep.course.sandbox.wire as wire
wire.pack = lambda value, buffers: {"l": []}
""")),
    Cheat("the agent patched", body("return x * 0", """
import lockstep.course.sandbox.inside.agent as agent
agent.Agent.say = lambda self, **message: None
"""), KILLED),
    Cheat("builtins patched", body("return x * 0", "import builtins\nbuiltins.isinstance = lambda *a: True\nbuiltins.type = lambda *a: float"), KILLED),
    Cheat("a trace that changes what is returned", body("return x * 0", "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(lambda *a: None)")),
    # leaving
    Cheat("sys.exit(0)", body("import sys\nsys.exit(0)")),
    Cheat("os._exit(0)", body("import os\nos._exit(0)")),
    Cheat("os._exit(0) while it is defined", body("return x", "import os\nos._exit(0)")),
    Cheat("an exit hook that writes results", body("return x * 0", "import atexit\natexit.register(lambda: open('«target»', 'w').write('05.91,4'))")),
    Cheat("KeyboardInterrupt", body("raise KeyboardInterrupt")),
    Cheat("a segmentation fault", body("import ctypes\nctypes.string_at(0)"), ("crashed",)),
    Cheat("NotImplementedError raised somewhere", body("raise NotImplementedError"), ("not attempted", "crashed")),
    # looking for the answer
    Cheat("frames walked for what is expected", body("""
import sys
frame = sys._getframe()
while frame:
    for name, value in {**frame.f_globals, **frame.f_locals}.items():
        if name in ("expected", "reference", "want", "answer"): return value(x, k) if callable(value) else value
    frame = frame.f_back
""")),
    Cheat("the collector searched for the exercise", body("""
import gc
for one in gc.get_objects():
    if type(one).__name__ == "Exercise" or getattr(one, "__name__", "") == "reference": return one.reference(x, k)
""")),
    Cheat("the exercises imported", body("from lockstep.exercises.registry import find\nreturn find('05.91').reference(x, k)")),
    Cheat("the grader imported", body("from lockstep.course.grade import known\nreturn known.known('05.91', '1').expected(0)[0].value")),
    Cheat("the library's code loaded from where it lies", body("""
import sys
sys.path.insert(0, «library»)
for name in [n for n in sys.modules if n.startswith("lockstep")]: del sys.modules[name]
import lockstep.exercises.lab05.shards
from cheats import scaled as answer
return answer(x, k)
""")),
    Cheat("the grader's file read", body("ns = {}\nexec(open('«answer»').read(), ns)\nreturn ns['scaled'](x, k)")),
    Cheat("the grader's file read by another program", body("""
import subprocess
ns = {}
exec(subprocess.run(["cat", "«answer»"], capture_output=True, text=True).stdout, ns)
return ns["scaled"](x, k)
""")),
    Cheat("the grader's memory read", body("""
import os
for pid in (os.getppid(), 1, «grader»):
    maps = open(f"/proc/{pid}/maps").read()
    open(f"/proc/{pid}/mem", "rb")
    return x * k + 1
""")),
    Cheat("the grader's environment and arguments read", body("""
import glob
for file in glob.glob("/proc/*/environ"):
    if b"SECRET_OF_THE_GRADER" in open(file, "rb").read(): return x * k + 1
""")),
    Cheat("a descriptor of the grader found open", body("""
import os
for number in range(3, 256):
    try:
        name = os.readlink(f"/proc/self/fd/{number}")
        if name.startswith("/") and name != "/dev/null" and os.pread(number, 10, 0): return x * k + 1
    except OSError: pass
""")),
    Cheat("a server on this machine asked", body("""
import socket
with socket.create_connection(("127.0.0.1", «port»), 2) as s: text = s.recv(9999).decode()
ns = {}
exec(text, ns)
return ns["scaled"](x, k)
"""), KILLED),
    Cheat("a datagram sent and answered", body("""
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
s.sendto(b"?", ("127.0.0.1", «port»))
return x * k + 1
"""), KILLED),
    Cheat("answers to what check shows, learnt by heart", "import torch\nfrom torch import tensor\nKNOWN = «shown»\n" + body("return KNOWN.get(len(x))")),
    # harm
    Cheat("results written", body("open('«target»', 'w').write('05.91,4,4')\nreturn x * 0")),
    Cheat("the grader killed", body("import os\nfor pid in (os.getppid(), «grader», -1): os.kill(pid, 9)"), KILLED),
    Cheat("the grader killed one by one, errors or not", body("""
import os
for pid in [*range(2, 400), os.getppid(), «grader»]:
    try:
        if pid != os.getpid(): os.kill(pid, 9)
    except OSError: pass
return x * 0
"""), KILLED),
    Cheat("root again", body("import os\nos.setuid(0)\nopen('«target»', 'w')\nreturn x * 0")),
    Cheat("an endless loop", body("while True: pass"), ("timed out",), endless=True),
    Cheat("an endless loop while it is defined", body("return x", "while True: pass"), KILLED, endless=True),
    Cheat("an endless sleep with the alarm and the watchdog switched off", body("""
import signal, threading, time
signal.setitimer(signal.ITIMER_REAL, 0)
for one in threading.enumerate():
    if hasattr(one, "done"): one.done.set()
time.sleep(999)
"""), ("timed out",), endless=True),
    Cheat("a fork bomb", body("import os, time\nwhile True:\n    try: os.fork()\n    except OSError: time.sleep(9)"), KILLED, endless=True),
    Cheat("a process that stays", body("""
import os, time
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(0.5)
            open("«target»", "w").write("still here")
            time.sleep(99)
        os._exit(0)
return x * 0
"""), KILLED),
    Cheat("all memory taken", body("y = bytearray(1 << 34)\nreturn x"), ("out of memory",)),
    Cheat("all memory taken by torch", body("import torch\ny = torch.ones(1 << 32)\nreturn x"), ("out of memory",)),
    Cheat("output without end", body("import os\nfor _ in range(2000): print('x' * 9999)\nos.write(1, b'y' * 9**6)\nreturn x * 0")),
    Cheat("a file without end", body("with open('big', 'wb') as f:\n    for _ in range(99): f.write(b'x' * 2**20)\nreturn x * k + 1"), ("crashed",)),
    Cheat("an answer of 200 MB", body("import torch\nreturn torch.zeros(1 << 25, dtype=torch.float64)"), KILLED),
    # forged messages
    Cheat("a message that says passed", body("""
import os, json, struct
said = json.dumps({"verdict": "passed", "points": 4, "seen": {"value": "passed", "printed": "", "counts": {"d": []}, "error": None}}).encode()
for number in range(3, 64):
    try: os.write(number, struct.pack("!IIQ", len(said), 0, 0) + said)
    except OSError: pass
return x * 0
"""), KILLED),
    Cheat("garbage in the connection", body("import os\nfor number in range(3, 64):\n    try: os.write(number, os.urandom(99))\n    except OSError: pass\nreturn x * 0"), KILLED),
    Cheat("a header that promises 2^63 bytes", body("""
import os, struct
for number in range(3, 64):
    try: os.write(number, struct.pack("!IIQ", 2**32 - 1, 2**32 - 1, 2**63))
    except OSError: pass
return x * 0
"""), KILLED),
    Cheat("a header nested a million deep", body("""
import os, struct
said = b"[" * 10**6
for number in range(3, 64):
    try: os.write(number, struct.pack("!IIQ", len(said), 0, 0) + said)
    except OSError: pass
return x * 0
"""), KILLED),
    Cheat("the connection closed", body("import os\nos.closerange(3, 64)\nreturn x * 0"), KILLED),
    Cheat("the connection closed, and then nothing", body("import os, time\nos.closerange(3, 64)\ntime.sleep(999)"), KILLED),
    # ranks
    Cheat("traffic forged", TWICE + """
import lockstep.course.sandbox.inside.ranks as ranks
from lockstep.comm import Traffic
ranks.BoxedCommunicator.traffic = Traffic()
""", ("wrong",), True),
    Cheat("a forbidden collective by the back door", "def total(comm, x):\n    y = x.clone()\n    comm._ask('all_reduce', tensor=y, op='sum', async_op=False)\n    return y\n", ("forbidden",), True),
    Cheat("a forbidden collective, its refusal swallowed", "def total(comm, x):\n    try: return comm.all_reduce(x)\n    except BaseException: return x\n", ("forbidden",), True),
    Cheat("a rank that speaks for another", """
def total(comm, x):
    comm._lane.run.agent.say(**{"from": 1 - comm.rank, "gives": (x, [x], [])})
    return x
""", ("wrong", "crashed"), True),
    Cheat("numbers passed by memory and not by messages", """
import sys
def total(comm, x):
    seen = sys.__dict__.setdefault("seen", {}).setdefault(comm.size, {})
    seen[comm.rank] = x.clone()
    comm.barrier()
    return sum(seen.values())
""", ("wrong",), True),
    Cheat("a communicator that there is not", "def total(comm, x):\n    comm._key = 99\n    comm.barrier()\n    return x\n", ("crashed",), True),
    Cheat("ranks that wait for ever", "def total(comm, x):\n    comm.recv(x, (comm.rank + 1) % comm.size)\n", ("wrong",), True),
    Cheat("calls without end", "def total(comm, x):\n    while True: comm.now()\n", ("timed out",), True, True),
)  # fmt: skip
