"""Kubernetes API resources of jobs: group, version, plural and the URL paths made of them."""

from __future__ import annotations

from typing import NamedTuple


class Resource(NamedTuple):
    """A resource as the API server knows it."""

    group: str
    version: str
    plural: str
    kind: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """URL path of a collection in a namespace (empty: in all), of one object, or of a subresource."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        parts = [root]
        if self.is_namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod")
