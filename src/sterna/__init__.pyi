from sterna.errors import UserError as UserError
from sterna.experiments.cluster import Cluster as Cluster
from sterna.experiments.comparison import Comparison as Comparison
from sterna.experiments.metrics.user_metric import metric as metric
from sterna.experiments.public import compare as compare
from sterna.experiments.public import simulate as simulate
from sterna.experiments.result import Result as Result
from sterna.workloads.generate import Mix as Mix
from sterna.workloads.trace import Trace as Trace

__version__: str
__all__: list[str]
