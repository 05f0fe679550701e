#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The checks of run.py against the sandbox, which speaks the same kubectl: for who changes them and has no cluster at hand."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "demo"))
from cluster import PYTHON, REPO, Cluster  # noqa: E402


def restart_command(cluster):
    """A curl that asks the sandbox for what `systemctl restart kubelet` does."""
    config = cluster.kubectl("config", "view", "--raw", "-o",
                             "jsonpath={.clusters[0].cluster.server} {.users[0].user.token}").split()
    return f"curl -fsk -X POST -H 'Authorization: Bearer {config[1]}' -d '{{\"seconds\": 1}}' {config[0]}/sandbox/restart-kubelet"


def main():
    cluster = Cluster(REPO / "demo/gpus.json")
    try:
        cluster.start_sandbox()
        env = dict(cluster.env, E2E_NODE="node-a", E2E_KUBELET_DIR=str(cluster.dir / "kubelet"), E2E_CDI_DIR=str(cluster.cdi_dir),
                   E2E_IMAGE="none", E2E_DAEMON_KUBECONFIG=str(cluster.dir / "daemon.kubeconfig"),
                   E2E_RESTART_KUBELET=restart_command(cluster))
        return subprocess.run([PYTHON, HERE / "run.py"], env=env, check=False).returncode
    finally:
        cluster.stop()


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
