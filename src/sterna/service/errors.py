"""Kinds of rejections of a `ClusterService`; the HTTP API has a status code for each.

NotFoundError      404  there is no job, node or replica of this name
NameTakenError     409  another job has this name
ForbiddenError     403  the caller lacks the right
MalformedError     400  the submission is neither YAML nor JSON
"""

from __future__ import annotations

from sterna.errors import UserError


class NotFoundError(UserError):
    """There is no object of this name."""


class NameTakenError(UserError):
    """Another object has this name."""


class ForbiddenError(UserError):
    """The caller may not do this."""


class MalformedError(UserError):
    """The text of a submission cannot be parsed."""
