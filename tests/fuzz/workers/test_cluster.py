"""Drivers behind a Dask scheduler say the same as those of this machine."""

import pytest
from drivers import DIES, JOB, SPEAKS

from fuser.runtime.executable import device_present
from fuzz.campaign.driver import Round
from fuzz.exit_code import USAGE
from fuzz.workers import local
from fuzz.workers.local import Ended

distributed = pytest.importorskip("distributed", reason="the extra [dask] is not installed")
cluster = pytest.importorskip("fuzz.workers.cluster")


def test_a_cluster_is_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane for each thread; each message arrives in order, then the end, with its reason."""
    options = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": ":0"}
    with (
        distributed.LocalCluster(processes=False, **options) as there,
        cluster.Cluster(there.scheduler_address) as pool,
    ):
        assert (pool.lanes, pool.gpu) == (2, device_present())
        for driver, said, why in (
            (SPEAKS, 3, ""),
            (DIES, 0, "was killed by signal 11 (SIGSEGV)"),
        ):
            monkeypatch.setattr(local, "_DRIVER", driver)
            pool.start(1, JOB)
            heard = [pool.heard(timeout=20.0) for _ in range(said + 1)]
            assert heard == [(1, Round(7, True))] * said + [(1, Ended(why))]


def test_a_scheduler_that_does_not_answer_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the commands that start one."""
    monkeypatch.setattr(cluster, "CONNECT_S", 0.5)
    with pytest.raises(
        cluster.ClusterError, match="--scheduler tcp://127.0.0.1:1: .*dask worker"
    ) as e:
        cluster.Cluster("tcp://127.0.0.1:1")
    assert e.value.exit_code == USAGE
