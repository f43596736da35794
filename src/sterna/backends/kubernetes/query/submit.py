"""Creates the objects of a submission: a dry run of each, then the objects themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sterna.backends.kubernetes.query.listing import ListedJob
from sterna.backends.kubernetes.query.manifests import SUBMISSION, ObjectToCreate, orders_of
from sterna.backends.kubernetes.query.reader import ApiReader
from sterna.errors import Retry, UserError
from sterna.kinds.objects import JobObject, Pod
from sterna.kinds.parsing.documents import Document, read_documents
from sterna.kinds.resource import PODS
from sterna.service.errors import MalformedError, NameTakenError, NotFoundError
from sterna.service.requests import Submission, Submitted
from sterna.service.views import JobView

_SOURCE = "the request"
_CATEGORY = "sterna.dev/category"


def documents_of(submission: Submission) -> list[Document]:
    """Parse the manifests of a submission."""
    try:
        if not submission.is_json:
            return read_documents(submission.body.decode(), _SOURCE)
        value = msgspec.json.decode(submission.body)
    except UnicodeDecodeError:
        raise MalformedError(f"{_SOURCE}: this is not text in UTF-8.") from None
    except msgspec.DecodeError as error:
        raise MalformedError(f"The body is not JSON ({error}).") from None
    values = value if isinstance(value, list) else [value]
    return [Document(_with_category(each, submission.category), _SOURCE) for each in values]


def _with_category(value: object, category: str) -> object:
    if not category or not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
        return value
    annotations = {**(value["metadata"].get("annotations") or {}), _CATEGORY: category}
    return {**value, "metadata": {**value["metadata"], "annotations": annotations}}


class ObjectCreator:
    """Creates jobs in one namespace."""

    def __init__(self, reader: ApiReader, namespace: str, view: Callable[[ListedJob], JobView]) -> None:
        """`view` makes the result of a created job."""
        self._reader, self._namespace, self._view = reader, namespace, view

    def create(self, documents: Sequence[Document], key: str, now: float) -> Submitted:
        """Create every job of these manifests. A dry run of each comes first, so that one rejected object rejects all;
        only a change between dry run and creation can leave some created and some not."""
        orders, notices = orders_of(documents, self._namespace, key, now)
        orders = [self._dry_run(order, key) for order in orders]
        created: list[JobView] = []
        for order in orders:
            try:
                created.append(self._create(order, key))
            except (UserError, Retry) as error:
                if not created:
                    raise
                names = ", ".join(job.name for job in created)
                raise type(error)(f"{str(error).removesuffix('.')}; created before that: {names}.") from None
        return Submitted(created, notices)

    def _dry_run(self, order: ObjectToCreate, key: str) -> ObjectToCreate:
        """Return the order under the first of its names that is free."""
        try:
            self._reader.create(order.resource, order.namespace, order.document, is_dry_run=True)
        except NameTakenError:
            if key and self._is_of_submission(order, key):
                return order
            further = order.with_next_name()
            if further is None:
                raise
            return self._dry_run(further, key)
        except UserError as error:
            raise type(error)(f"{order.where}: {error}") from None
        return order

    def _create(self, order: ObjectToCreate, key: str) -> JobView:
        resource, namespace = order.resource, order.namespace
        type_: type[JobObject] | type[Pod] = Pod if resource == PODS else JobObject
        try:
            body = self._reader.create(resource, namespace, order.document)
            created = msgspec.json.decode(body, type=type_)
        except (NameTakenError, Retry) as error:
            if not (key and order.name and self._is_of_submission(order, key)):
                further = order.with_next_name() if isinstance(error, NameTakenError) else None
                if further is None:
                    raise
                return self._create(further, key)  # the name was taken after the dry run
            # The response was lost, but the object was created.
            created = self._reader.get(resource, type_, namespace, order.name)
        return self._view(ListedJob(resource, created, [created] if isinstance(created, Pod) else []))

    def _is_of_submission(self, order: ObjectToCreate, key: str) -> bool:
        """True if the object of this name was created by the same submission."""
        try:
            found = self._reader.get(order.resource, JobObject, order.namespace, order.name)
        except NotFoundError:
            return False
        return found.metadata.annotations.get(SUBMISSION) == key
