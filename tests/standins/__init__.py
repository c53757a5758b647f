"""Services that the clients of OpenML and Kaggle ask, played on the loopback interface."""

from .kaggle import KaggleStandIn
from .openml import OpenmlStandIn
from .server import Answer, Corrupt, Cut, Fault, Hang, Request, Slow, StandIn, Status

__all__ = [
    "Answer",
    "Corrupt",
    "Cut",
    "Fault",
    "Hang",
    "KaggleStandIn",
    "OpenmlStandIn",
    "Request",
    "Slow",
    "StandIn",
    "Status",
]
