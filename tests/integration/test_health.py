# SPDX-License-Identifier: Apache-2.0
"""Faults of GPUs from the simulated driver to the slices, the health stream, Events, metrics, the doctor and back; and
which GPUs are offered at all."""

import http.client
import json
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from daemon_world import BUILD, DRIVER, SLICES, World, need_daemon, resources, wait_for  # noqa: E402

TIMEOUT_S = 200
EVENTS = resources.resource("events", "events.k8s.io")
HEALTHY, UNHEALTHY = 1, 2

setUpModule = need_daemon


class Admin(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("aliquot")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Node(World):
    """A World whose GPUs are described by their keys of the device file."""

    def __init__(self, devices, version="1.36", gate_off=False):
        self.described = devices
        super().__init__(len(devices), version)
        self.api.gate_off = gate_off

    def write_gpus(self, count):
        devices = [{"name": "NVIDIA H100 80GB HBM3", "memory": "80Gi", "sms": 132, "minor": i, "profile": "13.0",
                    "pci": f"0000:{0x65 + i:02x}:00.0", **device} for i, device in enumerate(self.described)]
        with open(self.gpu_config, "w", encoding="utf-8") as file:
            json.dump({"devices": devices}, file)

    def simctl(self, *words):
        subprocess.run([BUILD / "sim/simctl", *words], check=True, env=self.environment(), stdout=subprocess.DEVNULL)

    def devices(self):
        items, _ = self.api.list(SLICES, "", {})
        return {d["name"]: d for s in items for d in s["spec"]["devices"]}

    def versions(self):
        items, _ = self.api.list(SLICES, "", {})
        return {s["metadata"]["name"]: s["metadata"]["resourceVersion"] for s in items}

    def taints(self, name):
        """{key without its domain: (value, effect)} of a device that is offered, else None."""
        device = self.devices().get(name)
        return device and {t["key"].removeprefix(DRIVER + "/"): (t.get("value"), t["effect"])
                           for t in device.get("taints", [])}

    def events(self):
        items, _ = self.api.list(EVENTS, "", {})
        return {(e["reason"], e["note"]) for e in items}

    def ask(self, method, path, body=None):
        admin = Admin(self.path("run", "aliquotd.sock"))
        admin.request(method, path, json.dumps(body) if body else None)
        answer = admin.getresponse()
        value = json.loads(answer.read())
        admin.close()
        return answer.status, value

    def finding(self, name):
        """The gravest finding of that id."""
        return next(f for f in self.ask("GET", "/v1/doctor")[1]["findings"] if f["id"] == name)

    def metrics(self):
        address = re.search(r"serving /metrics address=([0-9.:]+)", self.said())[1]
        connection = http.client.HTTPConnection(address)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return text

    def readers(self):
        """Process ids of the daemon's NVML children."""
        return pathlib.Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split()


class Case(unittest.TestCase):
    def node(self, *args, **more):
        node = Node(*args, **more)
        self.addCleanup(node.close)
        return node

    def wait(self, node, what, condition, timeout=30):
        try:
            return wait_for(what, condition, timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{node.said()[-4000:]}") from None


class Faults(Case):
    def test_a_fault_from_its_event_to_its_end(self):
        node = self.node([{}, {}, {"mig": True}])
        node.start(health_hold="1s")
        self.wait(node, "slices", lambda: len(node.devices()) == 2)
        uuid = node.devices()["hami-gpu-0"]["attributes"]["uuid"]["string"]
        self.wait(node, "the event of the GPU in MIG mode",
                  lambda: any(r == "GPUNotOffered" and "MIG mode" in n for r, n in node.events()))
        self.assertIn("-mig 0", node.finding("gpus.left-out")["text"])

        node.simctl("xid", "1", "31")
        self.wait(node, "a program's error", lambda: node.taints("hami-gpu-1") == {"xid": ("31", "None")})
        node.simctl("action", "0", "reset")
        node.simctl("ecc", "0", "uncorrected")
        node.simctl("xid", "0", "48")
        unfit = {"xid": ("48", "NoSchedule"), "ecc": ("double-bit", "NoSchedule"),
                 "recovery-action": ("reset", "NoSchedule")}
        self.wait(node, "taints", lambda: node.taints("hami-gpu-0") == unfit)
        self.assertEqual(node.finding("gpus.fault")["level"], "error")
        self.assertIn(f'aliquot_gpu_faults_total{{uuid="{uuid}",kind="xid"}} 1', node.metrics())
        self.wait(node, "the event", lambda: any(r == "GPUXid" and "XID 48" in n for r, n in node.events()))
        peer = node.peer()
        for states in peer.watch_health(timeout=20):
            health = {d.device.device_name: (d.health, d.message) for d in states.devices}
            self.assertEqual(health["hami-gpu-0"][0], UNHEALTHY)
            self.assertIn("XID 48", health["hami-gpu-0"][1])
            self.assertEqual(health["hami-gpu-1"], (HEALTHY, ""))
            break
        peer.close()
        self.wait(node, "the driver to be let go for the reset", lambda: not node.readers())

        before = node.versions(), node.devices()
        node.stop(signal.SIGKILL)
        node.start(health_hold="1s")
        self.wait(node, "slices", lambda: "slices are published" in node.said())
        self.assertEqual((node.versions(), node.devices()), before)

        node.simctl("action", "0", "none")
        self.wait(node, "the end of the faults", lambda: node.taints("hami-gpu-0") == {})
        self.wait(node, "the event of the end", lambda: any(r == "GPUFaultOver" for r, _ in node.events()))

    def test_a_gpu_leaves_the_slice_where_taints_do_not_stick_and_an_operator_brings_it_back(self):
        node = self.node([{"profile": "550"}] * 2, version="1.34", gate_off=True)
        node.start(health_hold="0")
        self.wait(node, "slices", lambda: len(node.devices()) == 2)
        node.simctl("xid", "0", "119")
        self.wait(node, "the GPU to leave", lambda: list(node.devices()) == ["hami-gpu-1"])
        self.wait(node, "rest", lambda: node.said().count("slices are published") == 2)
        uuid = re.search(r"uuid=(GPU-\S+) xid=119", node.said())[1]
        self.assertEqual(node.ask("POST", "/v1/gpus/clear", {"uuid": "GPU-0"})[0], 404)
        self.assertEqual(node.ask("POST", "/v1/gpus/clear", {"gpu": uuid})[0], 400)
        self.assertEqual(node.ask("POST", "/v1/gpus/clear", {"uuid": uuid})[0], 200)
        self.wait(node, "the GPU to be back", lambda: len(node.devices()) == 2)


class Offers(Case):
    @staticmethod
    def is_gone(pid):
        try:
            return not pathlib.Path(f"/proc/{pid}/maps").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return True

    def test_hot_plug_exchange_of_the_driver_and_letting_go(self):
        node = self.node([{}])
        node.start()
        self.wait(node, "slices", lambda: list(node.devices()) == ["hami-gpu-0"])
        first = node.readers()
        node.simctl("add", json.dumps({"memory": "40Gi", "minor": 1, "pci": "0000:66:00.0"}))
        pathlib.Path(node.driver_root, "dev/nvidia1").touch()
        self.wait(node, "the new GPU", lambda: sorted(node.devices()) == ["hami-gpu-0", "hami-gpu-1"])
        second = node.readers()
        self.assertNotEqual(second, first)

        # As an upgrade does it: the old root goes, the new one comes a while later.
        maps = pathlib.Path(f"/proc/{second[0]}/maps")
        self.assertIn(node.driver_root, maps.read_text())
        shutil.rmtree(node.path("driver", "usr"))
        self.wait(node, "the reader to let go of the old driver", lambda: self.is_gone(second[0]))
        node.simctl("install-root", "--config", node.gpu_config, node.driver_root)
        self.wait(node, "the GPUs again", lambda: len(node.devices()) == 2)
        self.assertEqual(node.ask("POST", "/v1/driver/release", {"seconds": 0})[0], 400)
        self.assertEqual(node.ask("POST", "/v1/driver/release", {"seconds": 1})[0], 200)
        self.assertEqual(node.readers(), [])
        self.wait(node, "another reader", node.readers)
        self.assertEqual(len(node.devices()), 2)

    def test_choice_and_memory_that_nvml_does_not_tell(self):
        node = self.node([{}, {"name": "NVIDIA A10"}, {"name": "NVIDIA L40S"}])
        node.start(devices_include="*h100*,0000:66:00.0", devices_exclude="NVIDIA A10", reserve="1Gi")
        self.wait(node, "slices", lambda: list(node.devices()) == ["hami-gpu-0"])
        self.assertEqual(node.said().count("GPU is not offered"), 2)
        node.stop()
        config = pathlib.Path(node.path("config.yaml"))
        config.write_text("devicesInclude: ['*L40S']\n", encoding="utf-8")
        node.start(config=str(config))
        self.wait(node, "slices", lambda: list(node.devices()) == ["hami-gpu-2"])
        config.write_text("devicesExclude: ['*L40S']\nreserve: 16Gi\n", encoding="utf-8")
        node.daemon.send_signal(signal.SIGHUP)
        self.wait(node, "the new choice", lambda: sorted(node.devices()) == ["hami-gpu-0", "hami-gpu-1"])
        node.stop()
        node.simctl("fault", "nvmlDeviceGetMemoryInfo*", "--return", "NVML_ERROR_NOT_SUPPORTED")
        node.start()
        self.wait(node, "no devices", lambda: not node.devices())
        self.assertIn("--unified-memory", node.finding("gpus.left-out")["text"])
        node.stop()
        node.start(unified_memory="96Gi")
        self.wait(node, "the devices", lambda: len(node.devices()) == 3)
        self.assertEqual(node.devices()["hami-gpu-0"]["capacity"]["memory"]["value"], "96Gi")


if __name__ == "__main__":
    unittest.main()
