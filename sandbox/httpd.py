# SPDX-License-Identifier: Apache-2.0
"""The API server's HTTPS side: connections, authentication, routing, content types, watches and pod logs.

One thread a connection (HTTP/1.1 keep-alive); the work is done by api.Api. Only 127.0.0.1 is listened on. The
endpoints below /sandbox/ are the tests' (README.md lists them) and need the administrator's token.
"""

import hmac
import http.server
import json
import os
import random
import re
import secrets
import select
import socket
import ssl
import threading
import time
import urllib.parse

import yaml

import api as logic
import faults
import resources
import store as storage
import validate

_PUBLIC = {"/version", "/healthz", "/livez", "/readyz"}
_OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_PATCHES = {"application/json-patch+json": "json", "application/merge-patch+json": "merge",
            "application/strategic-merge-patch+json": "strategic", "application/apply-patch+yaml": "apply"}


Fault = faults.Fault


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    allow_reuse_address = True

    def __init__(self, api, certificate, key, port=0):
        super().__init__(("127.0.0.1", port), Handler)
        self.api, self.tokens, self.faults, self.hooks = api, {}, faults.Board(), {}
        self.logs, self.request_log = None, None
        self.lock, self.handlers, self.is_down = threading.Lock(), set(), threading.Event()
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.minimum_version = ssl.TLSVersion.TLSv1_2
        self.tls.load_cert_chain(certificate, key)
        self.tls.set_alpn_protocols(["http/1.1"])

    @property
    def address(self):
        return f"127.0.0.1:{self.server_address[1]}"

    def user(self, header):
        """The user of an Authorization header; None for a wrong token."""
        if not header:
            return logic.User("system:anonymous", ["system:unauthenticated"], [])
        kind, _, token = header.partition(" ")
        found = None
        for known, user in self.tokens.items():
            if kind.lower() == "bearer" and hmac.compare_digest(known, token.strip()):
                found = user
        return found

    def handle_error(self, request, client_address):
        """Clients that go away are no news."""

    def verify_request(self, request, client_address):
        return not self.is_down.is_set()

    def cut(self, pattern=""):
        """Closes the connections whose request at hand matches, as a broken network does. Returns how many."""
        with self.lock:
            found = [h for h in self.handlers if re.search(pattern, h.line)]
            for handler in found:
                try:
                    with socket.socket(fileno=os.dup(handler.connection.fileno())) as raw:
                        raw.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass  # it went by itself
        return len(found)

    def go_down(self, seconds):
        """Every connection is cut, and new ones are closed at once, for so long."""
        self.is_down.set()
        self.cut()
        timer = threading.Timer(seconds, self.is_down.clear)
        timer.daemon = True
        timer.start()


class _Closed(Exception):
    pass


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "aliquot-sandbox"
    sys_version = ""
    wbufsize = 65536
    timeout = 300

    line, user = "", None
    fault, strikes, is_held = None, None, False  # the fault of this request, when it is to strike

    def setup(self):
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.request.settimeout(10)
        self.request = self.server.tls.wrap_socket(self.request, server_side=True)
        super().setup()
        with self.server.lock:
            self.server.handlers.add(self)

    def handle(self):
        try:
            super().handle()
        except (_Closed, OSError, ssl.SSLError):
            self.close_connection = True

    def finish(self):
        with self.server.lock:
            self.server.handlers.discard(self)
        super().finish()

    def log_message(self, format, *args):
        pass

    # ------------------------------------------------------------------ one request

    def _serve(self):
        url = urllib.parse.urlsplit(self.path)
        self.url_path = url.path
        self.query = {k: v[-1] for k, v in urllib.parse.parse_qs(url.query, keep_blank_values=True).items()}
        self.raw = self._read_body()
        self.warnings = []
        started = time.monotonic()
        # Logged before it is done, so that who sees what it did finds it in the log.
        entry = {"method": self.command, "path": self.path, "user": None, "code": None}
        if self.server.request_log is not None:
            self.server.request_log.append(entry)
        code = 0
        self.line = f"{self.command} {self.path}"
        try:
            self.user = self.server.user(self.headers.get("Authorization"))
            entry["user"] = getattr(self.user, "name", None)
            is_ours = self.url_path.startswith("/sandbox/")
            self.fault = None if is_ours else self.server.faults.take(self.line, getattr(self.user, "name", None))
            self.strikes = self.fault.when if self.fault else None
            if self.strikes == "before":
                self._go_wrong()
            if self.user is None:
                raise logic.ApiError(401, "Unauthorized", "Unauthorized")
            if self.headers.get("Impersonate-User"):
                self._impersonate(self.headers["Impersonate-User"])
            self._route()
        except logic.ApiError as error:
            code = error.code
            self._json(error.code, error.status, headers=error.headers)
        except validate.StepZero:
            raise _Closed from None
        finally:
            entry.update(code=code or 200, seconds=round(time.monotonic() - started, 4), answered=time.monotonic_ns())
            if self.is_held:
                self.fault.reorder.leave()
            self.line, self.fault, self.is_held = "", None, False

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _go_wrong(self):
        """The fault strikes: before the request does its work, before its answer, or between events of a watch."""
        fault, self.strikes = self.fault, None
        if fault.delay_s:
            time.sleep(fault.delay_s)
        while fault.hang and not self.server.api.store.closed:
            self._check_client()
            time.sleep(0.02)
        if fault.close:
            raise _Closed
        if fault.code != 200:
            raise logic.ApiError(fault.code, faults.REASONS.get(fault.code, ""), "a fault that the test asked for",
                                 headers=fault.headers)

    def _before_answer(self):
        if self.strikes == "after":
            self._go_wrong()
        if self.fault and self.fault.reorder and not self.is_held:
            self.is_held = True
            self.fault.reorder.wait()

    def _read_body(self):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            out = b""
            while True:
                size = int(self.rfile.readline().split(b";")[0], 16)
                out += self.rfile.read(size)
                self.rfile.readline()
                if size == 0:
                    return out
        length = int(self.headers.get("Content-Length") or 0)
        return self.rfile.read(length) if length else b""

    def _send(self, code, content_type, body, headers=None):
        self._before_answer()
        self.send_response(code)
        self.send_header("Cache-Control", "no-cache, private")
        self.send_header("Content-Type", content_type)
        for warning in dict.fromkeys(self.warnings):
            text = warning.replace("\\", "\\\\").replace('"', '\\"')
            self.send_header("Warning", f'299 - "{text}"')
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def _json(self, code, obj, headers=None, content_type="application/json"):
        body = json.dumps(obj, separators=(",", ":"), ensure_ascii=False).encode()
        self._send(code, content_type, body + b"\n", headers)

    # ------------------------------------------------------------------ routing

    def _impersonate(self, name):
        """The administrator acts as a service account, on the node that the extra header names."""
        parts = name.split(":")
        if self.user.rules is not None or parts[:2] != ["system", "serviceaccount"] or len(parts) != 4:
            raise logic.ApiError(403, "Forbidden", f'users "{name}" is forbidden: User "{self.user.name}" cannot impersonate it '
                                                   "here: the administrator can, service accounts", {})
        extra = {urllib.parse.unquote(k).lower(): v for k, v in self.headers.items()}
        self.user = logic.Account(self.server.api.store, *parts[2:],
                                  node=extra.get("impersonate-extra-authentication.kubernetes.io/node-name"))

    def _route(self):
        path = self.url_path
        if path in _PUBLIC or re.fullmatch(r"/(healthz|livez|readyz)/[\w-]+", path):
            if path == "/version":
                return self._json(200, resources.version_info(self.server.api.version))
            return self._send(200, "text/plain; charset=utf-8", b"ok", {"X-Content-Type-Options": "nosniff"})
        parts = [urllib.parse.unquote(p) for p in path.split("/") if p]
        if parts[:1] == ["sandbox"]:
            return self._sandbox(parts[1:])
        if parts and parts[0] in ("api", "apis", "openapi"):
            if self.user.name == "system:anonymous" and not (len(parts) > 2 and parts[0] != "openapi"):
                self._forbid_path()
            if parts[0] == "openapi":
                return self._openapi(path)
            if self._discovery(parts):
                return None
            return self._resource(parts)
        if self.user.rules is not None:
            self._forbid_path()
        raise logic.ApiError(404, "NotFound", "the server could not find the requested resource", {})

    def _forbid_path(self):
        raise logic.ApiError(403, "Forbidden", f'forbidden: User "{self.user.name}" cannot '
                             f'{self.command.lower()} path "{self.url_path}"', {})

    def _discovery(self, parts):
        if self.command != "GET":
            return False
        accept = self.headers.get("Accept", "")
        body, content_type = None, "application/json"
        match = re.search(r"g=apidiscovery\.k8s\.io;v=v2;as=APIGroupDiscoveryList", accept)
        if parts in (["api"], ["apis"]):
            if match:
                body = resources.aggregated([""] if parts == ["api"] else resources.GROUPS)
                content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
            elif parts == ["api"]:
                body = resources.api_versions(self.server.address)
            else:
                body = resources.api_groups()
        elif parts == ["api", "v1"]:
            body = resources.api_resources("", "v1")
        elif parts[0] == "apis" and len(parts) == 2 and parts[1] in resources.GROUPS:
            body = resources.api_group(parts[1])
        elif parts[0] == "apis" and len(parts) == 3:
            body = resources.api_resources(parts[1], parts[2])
        if body is None:
            return False
        self._json(200, body, content_type=content_type)
        return True

    def _openapi(self, path):
        if path == "/openapi/v2":
            if "protobuf" in self.headers.get("Accept", ""):
                return self._send(200, _OPENAPI_V2, resources.openapi_v2_protobuf())
            return self._json(200, resources.openapi_v2())
        if path == "/openapi/v3":
            return self._json(200, resources.openapi_v3_index())
        body = resources.openapi_v3(path[len("/openapi/v3/"):]) if path.startswith("/openapi/v3/") else None
        if body is None:
            raise logic.ApiError(404, "NotFound", "the server could not find the requested resource", {})
        return self._json(200, body)

    def _target(self, parts):
        """(resource, namespace, name, subresource) of a path."""
        missing = logic.ApiError(404, "NotFound", "the server could not find the requested resource", {})
        if parts[:2] == ["api", "v1"]:
            group, version, rest = "", "v1", parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise missing
        namespace = ""
        if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        elif rest[:1] == ["namespaces"] and len(rest) > 3:
            raise missing
        res = resources.BY_PATH.get((group, version, rest[0])) if rest else None
        if res is None or len(rest) > 3 or (namespace and not res.namespaced):
            raise missing
        name, sub = (rest + ["", ""])[1:3]
        if sub and sub not in res.subresources:
            raise missing
        if res.namespaced and not namespace and name:
            raise missing
        return res, namespace, name, sub

    def _resource(self, parts):
        res, namespace, name, sub = self._target(parts)
        watch = self.query.get("watch", "") in ("1", "true")
        verb = {"GET": "get" if name else "watch" if watch else "list", "POST": "create", "PUT": "update",
                "PATCH": "patch", "DELETE": "delete" if name else "deletecollection"}[self.command]
        self._authorize(verb, res, namespace, name, sub)
        allowed = res.subresources.get(sub, ()) if sub else res.verbs
        if verb not in allowed or (verb == "create" and name and not sub) or (
                not name and verb in ("update", "patch")):
            raise logic.ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested "
                                                          "resource", {})
        return getattr(self, "_" + verb)(res, namespace, name, sub)

    def _authorize(self, verb, res, namespace, name, sub):
        resource = f"{res.plural}/{sub}" if sub else res.plural
        if res.group == "authorization.k8s.io" and self.user.name != "system:anonymous":
            return
        if self.user.may(verb, res.group, resource, name):
            return
        where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
        what = f'{res.qualified} "{name}"' if name else res.qualified
        details = {"name": name} if name else {}
        if res.group:
            details["group"] = res.group
        details["kind"] = res.plural
        raise logic.ApiError(403, "Forbidden", f'{what} is forbidden: User "{self.user.name}" cannot {verb} resource '
                             f'"{resource}" in API group "{res.group}" {where}', details,
                             {"X-Content-Type-Options": "nosniff"})

    # ------------------------------------------------------------------ verbs

    def _options(self, verb):
        options = logic.Options(self.query)
        options.verb = verb
        self.warnings = options.warnings
        return options

    def _object(self, res):
        kind = (self.headers.get("Content-Type") or "application/json").split(";")[0].strip()
        if kind not in ("application/json", "application/yaml"):
            raise logic.ApiError(415, "UnsupportedMediaType", "the body of the request was in an unknown format - "
                                 "accepted media types include: application/json, application/yaml, "
                                 "application/vnd.kubernetes.protobuf")
        return self._parse(kind, f"the object provided is unrecognized (must be of type {res.kind}): couldn't get "
                                 f"version/kind; json parse error: ")

    def _parse(self, kind, prefix):
        try:
            if "yaml" in kind:
                return yaml.safe_load(self.raw)
            return json.loads(self.raw)
        except (ValueError, yaml.YAMLError) as error:
            text = self.raw.decode(errors="replace")
            why = str(error)
            if isinstance(error, json.JSONDecodeError) and error.pos >= len(error.doc.rstrip()):
                why = "unexpected end of JSON input"
            raise logic.bad_request(f"{prefix}{why} ({text[:128]})") from None

    def _shape(self, res):
        """How the client wants objects: object, table or metadata."""
        accept = self.headers.get("Accept", "") or "*/*"
        for part in accept.split(","):
            fields = [f.strip() for f in part.split(";")]
            if fields[0] not in ("application/json", "application/*", "*/*", "application/yaml"):
                continue
            as_ = next((f[3:] for f in fields if f.startswith("as=")), "")
            if as_ == "Table":
                return "table"
            if as_.startswith("PartialObjectMetadata"):
                return "metadata"
            if not as_:
                return "object"
        raise logic.ApiError(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: "
                             "application/json, application/yaml, application/vnd.kubernetes.protobuf, "
                             "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch", {})

    def _answer(self, res, obj, code=200):
        shape = self._shape(res)
        if shape == "table" and obj.get("kind") == res.kind:
            meta = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
            obj = resources.table(res, [obj], meta, self.query.get("includeObject", "Metadata"))
        elif shape == "metadata" and obj.get("kind") == res.kind:
            obj = resources.partial(obj)
        self._json(code, obj)

    def _get(self, res, namespace, name, sub):
        if sub == "log":
            return self._log(res, namespace, name)
        return self._answer(res, self.server.api.get(res, namespace, name))

    def _list(self, res, namespace, name, sub):
        shape = self._shape(res)
        end = time.monotonic() + 3
        while True:
            try:
                objects, meta = self.server.api.list(res, namespace, self.query)
                break
            except logic.ApiError as error:
                left = end - time.monotonic()
                if error.code != 504 or left <= 0:
                    raise
                store = self.server.api.store
                store.wait(store.version, min(left, 0.5))
        if shape == "table":
            body = resources.table(res, objects, meta, self.query.get("includeObject", "Metadata"))
        elif shape == "metadata":
            body = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": meta,
                    "items": [resources.partial(o) for o in objects]}
        else:
            body = {"kind": res.kind + "List", "apiVersion": res.api_version, "metadata": meta,
                    "items": [{k: v for k, v in o.items() if k not in ("kind", "apiVersion")} for o in objects]}
        self._json(200, body)

    def _watch(self, res, namespace, name, sub):
        shape = self._shape(res)
        timeout = int(self.query.get("timeoutSeconds") or 0) or random.randint(1800, 3600)
        events = self.server.api.watch(res, namespace, self.query, timeout)
        self._start_stream("application/json")
        sent = 0
        for kind, obj in events:
            if self.strikes == "events" and sent >= self.fault.events:
                try:
                    self._go_wrong()
                except logic.ApiError as error:
                    self._chunk(json.dumps({"type": "ERROR", "object": error.status}).encode() + b"\n")
                    break
            if not kind:
                self._check_client()
                continue
            if shape == "table" and kind not in ("ERROR", "BOOKMARK"):
                obj = resources.table(res, [obj], {"resourceVersion": obj["metadata"]["resourceVersion"]},
                                      self.query.get("includeObject", "Metadata"))
            elif shape == "metadata" and kind not in ("ERROR",):
                obj = resources.partial(obj)
            self._chunk(json.dumps({"type": kind, "object": obj}, separators=(",", ":"),
                                   ensure_ascii=False).encode() + b"\n")
            sent += 1
        self._end_stream()

    def _start_stream(self, content_type):
        self._before_answer()
        self.send_response(200)
        self.send_header("Cache-Control", "no-cache, private")
        self.send_header("Content-Type", content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()

    def _chunk(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _end_stream(self):
        self.wfile.write(b"0\r\n\r\n")
        self.wfile.flush()

    def _check_client(self):
        """Ends the request when the client is gone: it says nothing while it reads a stream."""
        poll = select.poll()  # select() takes no descriptor above 1023
        poll.register(self.request, select.POLLIN)
        if self.request.pending() or poll.poll(0):
            raise _Closed

    def _create(self, res, namespace, name, sub):
        if sub == "binding":
            return self._bind(res, namespace, name)
        if sub == "token":
            return self._token(res, namespace, name)
        obj = self._object(res)
        if res.group == "authorization.k8s.io":
            wanted = (obj.get("spec") or {}).get("resourceAttributes") or {}
            resource = wanted.get("resource", "") + ("/" + wanted["subresource"] if wanted.get("subresource") else "")
            allowed = self.user.may(wanted.get("verb", ""), wanted.get("group", ""), resource,
                                    wanted.get("name", ""))
            return self._json(201, {**obj, "status": {"allowed": allowed}})
        if res.namespaced and not namespace:
            raise logic.bad_request("an empty namespace may not be set during creation")
        made = self.server.api.create(self.user, res, namespace, obj, self._options("create"))
        return self._answer(res, made, 201)

    def _token(self, res, namespace, name):
        """A token that never expires, bound to the node of boundObjectRef: the node itself, or the pod's."""
        self.server.api.get(res, namespace, name)
        request = json.loads(self.raw)
        bound, node = (request.get("spec") or {}).get("boundObjectRef") or {}, None
        if bound.get("kind") == "Node":
            node = self.server.api.get(resources.resource("nodes"), "", bound["name"])["metadata"]["name"]
        elif bound.get("kind") == "Pod":
            node = self.server.api.get(resources.resource("pods"), namespace, bound["name"])["spec"].get("nodeName")
        token = secrets.token_urlsafe(24)
        self.server.tokens[token] = logic.Account(self.server.api.store, namespace, name, node)
        self._json(201, {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "metadata": {"name": name, "namespace": namespace},
                         "spec": request.get("spec") or {}, "status": {"token": token, "expirationTimestamp": "2099-01-01T00:00:00Z"}})

    def _bind(self, res, namespace, name):
        binding = self._object(res)
        node = (binding.get("target") or {}).get("name", "")
        bind_pod(self.server.api, namespace, name, node)
        self._json(201, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})

    def _update(self, res, namespace, name, sub):
        obj = self._object(res)
        return self._answer(res, self.server.api.update(self.user, res, namespace, name, obj, sub,
                                                        self._options("update")))

    def _patch(self, res, namespace, name, sub):
        content = (self.headers.get("Content-Type") or "").split(";")[0].strip()
        if content not in _PATCHES:
            raise logic.ApiError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
        patch = self._parse(content, "error decoding patch: ")
        obj, made = self.server.api.patch(self.user, res, namespace, name, patch, _PATCHES[content], sub,
                                          self._options("patch"))
        return self._answer(res, obj, 201 if made else 200)

    def _delete_options(self):
        body = {}
        if self.raw:
            body = self._parse(self.headers.get("Content-Type", "application/json"), "") or {}
        for name in ("gracePeriodSeconds", "propagationPolicy"):
            if name in self.query:
                body[name] = int(self.query[name]) if name == "gracePeriodSeconds" else self.query[name]
        options = self._options("delete")
        options.dry_run = options.dry_run or bool(body.get("dryRun"))
        return body, options

    def _delete(self, res, namespace, name, sub):
        body, options = self._delete_options()
        return self._answer(res, self.server.api.delete(self.user, res, namespace, name, body, options))

    def _deletecollection(self, res, namespace, name, sub):
        body, options = self._delete_options()
        gone, meta = self.server.api.delete_collection(self.user, res, namespace, self.query, body, options)
        self._json(200, {"kind": res.kind + "List", "apiVersion": res.api_version, "metadata": meta, "items": gone})

    # ------------------------------------------------------------------ logs and the tests' endpoints

    def _log(self, res, namespace, name):
        pod = self.server.api.get(res, namespace, name)
        names = [c["name"] for c in pod["spec"]["containers"]]
        every = [c["name"] for c in pod["spec"].get("initContainers") or []] + names
        container = self.query.get("container", "")
        if not container:
            if len(every) > 1:
                raise logic.bad_request(f"a container name must be specified for pod {name}, choose one of: "
                                        f"[{' '.join(every)}]")
            container = names[0]
        if container not in every:
            raise logic.bad_request(f"container {container} is not valid for pod {name}")
        logs = self.server.logs
        path = logs.path(pod, container, self.query.get("previous") == "true") if logs else None
        if path is None or not os.path.exists(path):
            state = "ContainerCreating"
            raise logic.bad_request(f'container "{container}" in pod "{name}" is waiting to start: {state}')
        with open(path, "rb") as file:
            data = file.read()
            tail = self.query.get("tailLines")
            if tail is not None:
                lines = data.splitlines(keepends=True)
                data = b"".join(lines[len(lines) - int(tail):] if int(tail) < len(lines) else lines)
                data = b"" if int(tail) == 0 else data
            if "limitBytes" in self.query:
                data = data[:int(self.query["limitBytes"])]
            if self.query.get("follow") != "true":
                return self._send(200, "text/plain", data)
            self._start_stream("text/plain")
            if data:
                self._chunk(data)
            while True:
                over = logs.finished(pod, container)
                data = file.read()
                if data:
                    self._chunk(data)
                elif over or self.server.api.store.closed:
                    return self._end_stream()
                else:
                    self._check_client()
                    time.sleep(0.05)

    def _sandbox(self, parts):
        if self.user.rules is not None:
            self._forbid_path()
        name = "/".join(parts)
        if self.command == "POST" and name == "compact":
            self.server.api.store.compact()
            return self._json(200, {})
        if parts[:1] == ["fault"]:
            return self._json(200, self._fault_board(parts[1:]))
        if self.command == "POST" and name == "cut":
            return self._json(200, {"cut": self.server.cut(json.loads(self.raw or b"{}").get("match", ""))})
        if self.command == "POST" and name == "api-down":
            self._json(200, {})
            return self.server.go_down(float(json.loads(self.raw)["seconds"]))
        hook = self.server.hooks.get((self.command, name))
        if hook is None:
            raise logic.ApiError(404, "NotFound", "the server could not find the requested resource", {})
        return self._json(200, hook(json.loads(self.raw) if self.raw else {}) or {})


    def _fault_board(self, parts):
        board = self.server.faults
        try:
            if self.command == "POST" and not parts:
                return {"id": board.put(json.loads(self.raw)).id}
            if self.command == "DELETE":
                board.drop(int(parts[0]) if parts else None)
        except (ValueError, TypeError, KeyError, re.error) as error:
            raise logic.bad_request(f"fault: {error}") from None
        return {"faults": board.dump()}


def bind_pod(api, namespace, name, node):
    """What POST pods/NAME/binding does: nodeName and the PodScheduled condition, once."""
    res = resources.resource("pods")
    with api.store.lock:
        pod = storage.clone(api.get(res, namespace, name))
        if pod["spec"].get("nodeName"):
            raise logic.ApiError(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} '
                                 f'is already assigned to node "{pod["spec"]["nodeName"]}"',
                                 {"name": name, "kind": "pods/binding"})
        if pod["metadata"].get("deletionTimestamp"):
            raise logic.ApiError(409, "Conflict", f'Operation cannot be fulfilled on pods/binding "{name}": pod {name} '
                                 "is being deleted, cannot be assigned to a host",
                                 {"name": name, "kind": "pods/binding"})
        pod["spec"]["nodeName"] = node
        status = pod.setdefault("status", {})
        rest = [c for c in status.get("conditions", []) if c["type"] != "PodScheduled"]
        status["conditions"] = rest + [{"type": "PodScheduled", "observedGeneration": 1, "status": "True",
                                        "lastProbeTime": None, "lastTransitionTime": logic.now()}]
        api.store.put("pods", namespace, name, pod)
