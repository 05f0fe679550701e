# SPDX-License-Identifier: Apache-2.0
"""The kubelet's plugin manager and its DRA calls: registration sockets, connections, Prepare and Unprepare.

Owns one thread that looks at plugins_registry (reference/dra.md 3.3) and one for each plugin's health stream. Calls may
be made from any thread. A plugin is registered while its registration socket is there; of several instances of a driver
the newest that is connected is used.
"""

import os
import stat
import threading
import time
import urllib.parse

import grpc

import pluginapi

POLL_S = 0.1
HEALTH_S = 30  # how long an update holds that does not say it


class PluginError(RuntimeError):
    """A plugin cannot be called or did not answer as it must; str() is the kubelet's wording."""


def _describe(error):
    name = error.code().name if error.code() else "UNKNOWN"
    camel = "".join(p.capitalize() for p in name.split("_"))
    return f"rpc error: code = {camel} desc = {error.details()}"


def _open(path, authority):
    options = [("grpc.default_authority", authority), ("grpc.enable_http_proxy", 0),
               ("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 1000),
               ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 100)]
    return grpc.insecure_channel(f"unix:{path}", options=options)


class Plugin:
    """One registered plugin instance."""

    def __init__(self, info, socket):
        self.name, self.socket = info.name, socket
        self.endpoint = info.endpoint or socket
        self.version = next((v for v in info.supported_versions if v in pluginapi.SERVICES), None)
        self.versions = list(info.supported_versions)
        self.channel = _open(self.endpoint, "localhost")
        self.health = {}  # (pool, device): (state, message, until when)
        self.closed = threading.Event()
        self.connected, self._was_ready = True, False

    def watch_connection(self, on_lost):
        """Keeps `connected` true to the connection; on_lost(driver) is called when it goes."""
        def changed(state):
            before = self.connected
            self._was_ready = self._was_ready or state is grpc.ChannelConnectivity.READY
            # Idle and connecting are how a new connection begins, too.
            self.connected = state is grpc.ChannelConnectivity.READY or (
                not self._was_ready and state is not grpc.ChannelConnectivity.TRANSIENT_FAILURE)
            if before and not self.connected and not self.closed.is_set():
                on_lost(self.name)
        self.channel.subscribe(changed, try_to_connect=True)

    def call(self, method, claims, answer, timeout):
        request = pluginapi.messages["ClaimsRequest"]()
        for claim in claims:
            request.claims.add(namespace=claim["namespace"], uid=claim["uid"], name=claim["name"])
        try:
            reply = pluginapi.unary(self.channel, pluginapi.SERVICES[self.version] + method, request, answer, timeout)
        except grpc.RpcError as error:
            raise PluginError(f"{method}: {_describe(error)}") from None
        except ValueError:
            raise PluginError(f"{method}: the connection to {self.name} is closed") from None
        out = {}
        for entry in reply.claims:
            out[entry.key] = entry.value
        uids = {c["uid"] for c in claims}
        for uid in out:
            if uid not in uids:
                raise PluginError(f"{method} returned a result for an unknown claim UID: {uid}")
        for claim in claims:
            if claim["uid"] not in out:
                raise PluginError(f"{method} skipped {len(uids) - len(out)} ResourceClaims")
        return out

    def close(self):
        self.closed.set()
        self.channel.close()


class Manager:
    """Watches the registration directory and keeps the registered plugins."""

    def __init__(self, directory, log, on_gone, health=False, is_new=True):
        """is_new: a kubelet that knows the fields of an update that came after 1.34."""
        self.directory, self.log, self.on_gone, self.asks_health = directory, log, on_gone, health
        self.is_new = is_new
        self.lock = threading.Lock()
        self.plugins, self._retry, self._seen = [], {}, {}
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._loop, name="plugin-watcher", daemon=True)
        os.makedirs(directory, exist_ok=True)

    def start(self):
        self.thread.start()

    def stop(self):
        self.stopped.set()
        self.thread.join(5)
        with self.lock:
            for plugin in self.plugins:
                plugin.close()
            self.plugins = []

    def get(self, driver):
        """The newest connected instance of a driver, else the newest. Raises PluginError."""
        with self.lock:
            found = [p for p in reversed(self.plugins) if p.name == driver]
        if not found:
            raise PluginError(f"DRA driver {driver} is not registered")
        return next((p for p in found if p.connected), found[0])

    def is_connected(self, driver):
        with self.lock:
            return any(p.connected for p in self.plugins if p.name == driver)

    def health(self, driver, pool, device):
        """(Healthy, Unhealthy or Unknown, message) of a device, by the driver's newest instance."""
        with self.lock:
            plugin = next((p for p in reversed(self.plugins) if p.name == driver), None)
        state, message, until = plugin.health.get((pool, device), (0, "", 0)) if plugin else (0, "", 0)
        if time.monotonic() > until:
            return "Unknown", ""
        return {1: "Healthy", 2: "Unhealthy"}.get(state, "Unknown"), message

    def dump(self):
        with self.lock:
            found = list(self.plugins)
        return [{"name": p.name, "endpoint": p.endpoint, "version": p.version, "versions": p.versions,
                 "connected": p.connected,
                 "health": {f"{pool}/{device}": {"state": self.health(p.name, pool, device)[0], "message": message}
                            for (pool, device), (_, message, _) in list(p.health.items())}} for p in found]

    def _sockets(self):
        out = {}
        for folder, _, names in os.walk(self.directory):
            for name in names:
                path = os.path.join(folder, name)
                try:
                    info = os.lstat(path)
                except OSError:
                    continue
                if not name.startswith(".") and stat.S_ISSOCK(info.st_mode):
                    out[path] = (info.st_ino, info.st_ctime_ns)
        return out

    def _loop(self):
        while not self.stopped.wait(POLL_S):
            sockets = self._sockets()
            for path in [p for p in self._seen if sockets.get(p) != self._seen[p]]:
                self._seen.pop(path)
                self._retry.pop(path, None)
                self._deregister(path)
            for path, identity in sockets.items():
                if path in self._seen:
                    continue
                due, pause = self._retry.get(path, (0, 0.25))
                if time.monotonic() < due:
                    continue
                try:
                    self._register(path)
                    self._seen[path] = identity
                except (PluginError, grpc.RpcError) as error:
                    text = _describe(error) if isinstance(error, grpc.RpcError) else str(error)
                    self.log(f"registration of {path} failed: {text}")
                    pause = min(pause * 2, 120)
                    self._retry[path] = (time.monotonic() + pause, pause)

    def _register(self, path):
        channel = _open(path, urllib.parse.quote(path, safe=""))
        try:
            info = pluginapi.unary(channel, pluginapi.REGISTRATION + "GetInfo", pluginapi.messages["InfoRequest"](),
                                   "PluginInfo", 1)
            problem, plugin = self._check(info), None
            if problem is None:
                plugin = Plugin(info, path)
                with self.lock:
                    if any(p.endpoint == plugin.endpoint for p in self.plugins):
                        problem = f"endpoint {plugin.endpoint} of driver {plugin.name} is already registered"
            status = pluginapi.messages["RegistrationStatus"](plugin_registered=problem is None,
                                                              error=problem or "")
            if problem is None:
                with self.lock:
                    self.plugins.append(plugin)
            try:
                pluginapi.unary(channel, pluginapi.REGISTRATION + "NotifyRegistrationStatus", status,
                                "RegistrationStatusResponse", 5)
            except grpc.RpcError:
                if plugin is not None:
                    self._drop(plugin)
                raise
            if problem is not None:
                raise PluginError(problem)
            self.log(f"registered {plugin.name} at {plugin.endpoint} as {plugin.version}")
            plugin.watch_connection(self.on_gone)
            if self.asks_health:
                threading.Thread(target=self._watch_health, args=(plugin,), daemon=True).start()
        finally:
            channel.close()

    @staticmethod
    def _check(info):
        if info.type != "DRAPlugin":
            return f"invalid plugin type: {info.type}"
        if not info.name:
            return "empty plugin name"
        if not any(v in pluginapi.SERVICES for v in info.supported_versions):
            return f"none of the supported versions {list(info.supported_versions)} is known"
        return None

    def _drop(self, plugin):
        with self.lock:
            if plugin in self.plugins:
                self.plugins.remove(plugin)
        plugin.close()

    def _deregister(self, path):
        with self.lock:
            gone = [p for p in self.plugins if p.socket == path]
        for plugin in gone:
            self._drop(plugin)
            self.log(f"{plugin.name} is gone from {path}")
            self.on_gone(plugin.name)

    def _watch_health(self, plugin):
        """Asks for health as the kubelets up to 1.36 do: v1alpha1 whatever is advertised, and again 5 s after every end
        of the stream, which also ends what it said."""
        stream = plugin.channel.unary_stream(pluginapi.HEALTH, request_serializer=lambda m: m.SerializeToString(),
                                             response_deserializer=pluginapi.messages["WatchResponse"].FromString)
        while not plugin.closed.is_set():
            try:
                for update in stream(pluginapi.messages["WatchRequest"]()):
                    for entry in update.devices:
                        key = (entry.device.pool_name, entry.device.device_name)
                        timeout_s = entry.health_check_timeout_seconds if self.is_new else 0
                        message = entry.message if len(entry.message) <= 1024 else entry.message[:1021] + "..."
                        plugin.health[key] = (entry.health, message if self.is_new else "",
                                              time.monotonic() + (timeout_s or HEALTH_S))
            except (grpc.RpcError, ValueError):
                pass
            plugin.health.clear()
            plugin.closed.wait(5)
