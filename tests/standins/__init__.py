"""Services that the clients of OpenML, Kaggle and Hugging Face ask, played on the loopback interface."""

from .chat import ChatStandIn, completion
from .hub_models import ModelHubStandIn, StoredModel
from .kaggle import KaggleStandIn
from .openml import OpenmlStandIn
from .server import Answer, Corrupt, Cut, Fault, Hang, Request, Slow, StandIn, Status

__all__ = [
    "Answer",
    "ChatStandIn",
    "Corrupt",
    "Cut",
    "Fault",
    "Hang",
    "KaggleStandIn",
    "ModelHubStandIn",
    "OpenmlStandIn",
    "Request",
    "Slow",
    "StandIn",
    "Status",
    "StoredModel",
    "completion",
]
