"""Everything that `python -m benchmarks measure` can measure. Options of a row are the arguments of its function."""

from __future__ import annotations

from typing import NamedTuple


class Measurement(NamedTuple):
    """A row: `module:function` in this package, imported when it is asked for, and one line of help."""

    function: str
    help: str


MEASUREMENTS = {
    "demo": Measurement("studies.demo:demo", "POAD on Tomato Salad with the pocket model: table, curve and GIF"),
    "env-speed": Measurement("performance.env_speed:env_speed", "speed of the environments, text included"),
    "env-scores": Measurement("performance.env_scores:env_scores", "exact scores of random and of optimal play"),
    "choices": Measurement("performance.choices:choices", "share of actions with more than one choice on each task"),
    "datasci-scores": Measurement(
        "performance.datasci_scores:datasci_scores", "scores of the oracle and of random code on DataSciCoding"
    ),
    "datasci-generated": Measurement(
        "performance.datasci_generated:datasci_generated", "reference scores on generated tables"
    ),
    "datasci-baselines": Measurement(
        "references.datasci_baselines:datasci_baselines", "plain scikit-learn on the tables of DataSciCoding"
    ),
    "sandbox-latency": Measurement("performance.sandbox_latency:sandbox_latency", "cost of the sandbox"),
    "pocket-coder": Measurement(
        "performance.pocket_coder:pocket_coder", "what the pocket coder writes before it is trained"
    ),
    "throughput": Measurement(
        "performance.throughput:throughput", "cost of an environment step in training, ours and two plain loops'"
    ),
    "scaling": Measurement("performance.scaling:scaling", "how the cost of an environment step grows"),
    "overlap": Measurement("performance.overlap:overlap", "where the time of a training on code goes"),
    "memory": Measurement("performance.memory:memory", "estimates of memory against the bytes that trainings hold"),
    "real-size": Measurement("performance.real_size:real_size", "models of real sizes with random weights"),
    "architectures": Measurement(
        "performance.architectures:architectures", "every causal architecture of transformers, as a tiny random model"
    ),
    "theory": Measurement("performance.theory:theory", "the discount inside actions, exactly"),
    "keytoken": Measurement("performance.keytoken:keytoken", "POAD on KeyToken with other discounts inside actions"),
    "language-ability": Measurement(
        "performance.language_ability:language_ability", "tasks of lm-eval before and after a training"
    ),
    "installing": Measurement(
        "performance.installing.wheel:installing", "the wheel in empty environments, with each extra alone"
    ),
}
