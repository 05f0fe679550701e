# SPDX-License-Identifier: Apache-2.0
"""Events in their two forms, core/v1 and events.k8s.io/v1, and what the API server refuses of each.

An event with eventTime must have all that the new form wants, whichever API it comes by; the new API wants eventTime
and none of the old form's fields, and takes changes of the series alone. Pure functions; the store has the core form.
"""

import validate as rules

_TEXT_MAX, _NOTE_MAX = 128, 1024
_FROZEN = ("involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type",
           "eventTime", "action", "related", "reportingComponent", "reportingInstance")


def validate(event, namespace, res):
    """Problems of a new event."""
    is_new = res.group == "events.k8s.io"
    out = _common(event, namespace, "reportingController" if is_new else "reportingComponent")
    if not is_new:
        return out
    out += _series(event)
    if not event.get("eventTime"):
        out.append(rules.required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        out.append(rules.invalid("type", "", f"has invalid value: {event.get('type', '')}"))
    for field in ("firstTimestamp", "lastTimestamp", "count", "source"):
        if event.get(field):
            out.append(rules.invalid(field, "", "needs to be unset"))
    return out


def validate_update(event, old, namespace, res):
    is_new = res.group == "events.k8s.io"
    out = _common(event, namespace, "reportingController" if is_new else "reportingComponent")
    if not is_new:
        return out
    if event.get("series") != old.get("series"):
        out += _series(event)
    return out + [rules.invalid(f, event.get(f), "field is immutable") for f in _FROZEN
                  if (event.get(f) or None) != (old.get(f) or None)]


def _common(event, namespace, controller):
    where = (event.get("involvedObject") or {}).get("namespace", "")
    mismatch = [rules.invalid("involvedObject.namespace", where, "does not match event.namespace")]
    if not event.get("eventTime"):
        return mismatch if where != namespace and (where or namespace != "default") else []
    out = mismatch if not where and namespace not in ("default", "kube-system") else []
    if not event.get("reportingComponent"):
        out.append(rules.required(controller))
    else:
        out += rules.label_key(controller, event["reportingComponent"])
    for field in ("reportingInstance", "action", "reason"):
        text = event.get(field, "")
        if not text:
            out.append(rules.required(field))
        elif len(text.encode()) > _TEXT_MAX:
            out.append(rules.invalid(field, "", f"can have at most {_TEXT_MAX} characters"))
    if len(event.get("message", "").encode()) > _NOTE_MAX:
        out.append(rules.invalid("message", "", f"can have at most {_NOTE_MAX} characters"))
    return out


def _series(event):
    series, out = event.get("series"), []
    if not series:
        return out
    if series.get("count", 0) < 2:
        out.append(rules.invalid("series.count", "", "should be at least 2"))
    if not series.get("lastObservedTime"):
        out.append(rules.required("series.lastObservedTime"))
    return out


def to_core(event):
    if "regarding" not in event and "note" not in event and "reportingController" not in event:
        return {**event, "apiVersion": "v1"}
    out = {"kind": "Event", "apiVersion": "v1", "metadata": event["metadata"],
           "involvedObject": event.get("regarding", {}), "reason": event.get("reason", ""),
           "message": event.get("note", ""), "source": event.get("deprecatedSource", {}),
           "type": event.get("type", ""), "eventTime": event.get("eventTime"),
           "action": event.get("action", ""), "reportingComponent": event.get("reportingController", ""),
           "reportingInstance": event.get("reportingInstance", "")}
    for new, old in (("series", "series"), ("related", "related"), ("deprecatedCount", "count"),
                     ("deprecatedFirstTimestamp", "firstTimestamp"), ("deprecatedLastTimestamp", "lastTimestamp")):
        if event.get(new):
            out[old] = event[new]
    return out


def to_new(event):
    out = {"kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": event["metadata"],
           "eventTime": event.get("eventTime"), "reportingController": event.get("reportingComponent", ""),
           "reportingInstance": event.get("reportingInstance", ""), "action": event.get("action", ""),
           "reason": event.get("reason", ""), "regarding": event.get("involvedObject", {}),
           "note": event.get("message", ""), "type": event.get("type", ""),
           "deprecatedSource": event.get("source", {}),
           "deprecatedFirstTimestamp": event.get("firstTimestamp"),
           "deprecatedLastTimestamp": event.get("lastTimestamp")}
    for old, new in (("series", "series"), ("related", "related"), ("count", "deprecatedCount")):
        if event.get(old):
            out[new] = event[old]
    return out
