"""Facts of the nodes of a Ray cluster, each reported by the node itself."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple

from poad_sb3.distributed.ray_cluster import LOCAL, RayConnection, first_line

__all__ = ["Node", "describe_nodes"]

_SECONDS = 120.0
"""Longest wait for a node's answer, in seconds."""


class Node(NamedTuple):
    """A node of a cluster.

    Attributes:
        name: Host name and address.
        cores: Number of cores.
        gpus: Number of GPUs.
        sandboxes: Number of programs that it runs at a time.
        python: Version of Python.
        package: Version of this package; None if it is not installed.
        layers: Active layers of the sandbox.
        missing: Missing layers of the sandbox.
        problem: Reason why the node did not answer; empty if it did.
    """

    name: str
    cores: float
    gpus: float
    sandboxes: float
    python: str = ""
    package: str | None = None
    layers: Sequence[str] = ()
    missing: Sequence[str] = ()
    problem: str = ""


def describe_nodes(address: str = LOCAL) -> list[Node]:
    """Describe the living nodes of a cluster, by a task on each.

    Args:
        address: Address of the cluster, see `RayConnection`.

    Raises:
        MissingExtraError: If Ray is not installed.
        WorkerError: If there is no cluster at the address.
    """
    connection = RayConnection(address)
    try:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        nodes = sorted(
            (node for node in ray.nodes() if node["Alive"]), key=lambda node: str(node["NodeManagerAddress"])
        )
        answers = [
            ray.remote(_describe_here)
            .options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            )
            .remote()
            for node in nodes
        ]
        return [_node(node, answer) for node, answer in zip(nodes, answers, strict=True)]
    finally:
        connection.close()


def _node(about: dict[str, Any], answer: Any) -> Node:
    import ray

    amounts = about["Resources"]
    node = Node(
        f"{about['NodeManagerHostname']} ({about['NodeManagerAddress']})",
        amounts.get("CPU", 0.0),
        amounts.get("GPU", 0.0),
        amounts.get("sandbox", 0.0),
    )
    try:
        return node._replace(**ray.get(answer, timeout=_SECONDS))
    except Exception as error:  # of Ray, or of imports there
        return node._replace(problem=f"{type(error).__name__}: {first_line(error)}")


def _describe_here() -> dict[str, Any]:
    from lang_envs.sandbox.confinement.layers import probe

    confinement = probe()
    try:
        package = version("lang-envs")
    except PackageNotFoundError:
        package = None
    return {
        "python": platform.python_version(),
        "package": package,
        "layers": sorted(map(str, confinement.active)),
        "missing": sorted(map(str, confinement.missing)),
    }
