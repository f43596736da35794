"""Merge patches and JSON patches, as an API server applies them: values in, values out."""

from __future__ import annotations

from typing import Any

from tests.fakes.kube_store import Object, Refused, copy_of


def merged(target: Any, patch: Any) -> Any:
    """RFC 7386: null removes, lists are replaced whole."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result


def patched(target: Object, operations: Any) -> Object:
    """RFC 6902: add, remove, replace, test; the first that fails refuses the whole."""
    if not isinstance(operations, list):
        raise Refused(400, "BadRequest", "a JSON patch is a list of operations")
    result = copy_of(target)
    for operation in operations:
        try:
            _apply(result, operation)
        except (KeyError, IndexError, ValueError, TypeError):
            raise Refused(
                422, "Invalid", f"the server rejected our request due to an error in our request: {operation}"
            ) from None
    return result


def _apply(target: Object, operation: Object) -> None:
    parts = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
    parent: Any = target
    for part in parts[:-1]:
        parent = parent[int(part)] if isinstance(parent, list) else parent[part]
    last, name = parts[-1], operation["op"]
    if isinstance(parent, list):
        _apply_to_list(parent, len(parent) if last == "-" else int(last), name, operation)
    elif name in ("add", "replace"):  # what is not there is replaced all the same: seen on a real server
        parent[last] = operation["value"]
    elif name == "remove":
        del parent[last]
    elif name != "test" or parent.get(last) != operation["value"]:
        raise ValueError(name)


def _apply_to_list(parent: list[Any], index: int, name: str, operation: Object) -> None:
    if name == "add":
        parent.insert(index, operation["value"])
    elif name == "replace":
        parent[index] = operation["value"]
    elif name == "remove":
        del parent[index]
    elif name != "test" or parent[index] != operation["value"]:
        raise ValueError(name)
