"""What tests run in the place of a driver: small, and quick to start."""

import pickle
from pathlib import Path

from fuzz.campaign.driver import Job, Plan, Round

PLAN = Plan(5.0, None, 0, ("prover",), 1, (1, 1), Path("ledger.sqlite"), False, False, False)
JOB = Job(PLAN, 0, {}, (), mutants=False, done=frozenset())
SPEAKS = f"""
import sys
from multiprocessing.connection import Connection
pipe = Connection(int(sys.argv[1]))
pipe.recv_bytes()
for _ in range(3):
    pipe.send_bytes({pickle.dumps(Round(7, True))!r})
"""
"""A driver that reports one round three times, and ends."""
HEARS = """
import sys
from collections import Counter
from multiprocessing.connection import Connection
from fuzz.campaign.driver import Round
pipe = Connection(int(sys.argv[1]))
job = pipe.recv()
pipe.send(Round(job.worker, True, Counter({("a cell",): 1 + job.worker})))
pipe.send(Round(9, False, pipe.recv()))
"""
"""A driver that draws a cell once and its own number, and reports what others have drawn."""
WAITS = "import time; kept = b'x' * (200 << 20); time.sleep(60)"
"""A driver with 200 MiB that does nothing."""
DIES = "import os; os.kill(os.getpid(), 11)"
"""A driver that crashes."""
