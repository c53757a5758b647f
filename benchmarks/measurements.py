"""The rows of `python -m benchmarks measure`: modules of this package, and one line of help."""

MEASUREMENTS = {
    "demo": ("studies.demo", "POAD on Tomato Salad with the pocket model: table, curve and GIF"),
    "env-speed": ("performance.env_speed", "speed of the environments, text included"),
    "env-scores": ("performance.env_scores", "exact scores of random and of optimal play"),
    "choices": ("performance.choices", "share of actions with more than one choice on each task"),
    "datasci-scores": ("performance.datasci_scores", "scores of the oracle and of random code on DataSciCoding"),
    "datasci-generated": ("performance.datasci_scores", "reference scores on generated tables"),
    "datasci-baselines": ("references.datasci_baselines", "plain scikit-learn on the tables of DataSciCoding"),
    "sandbox-latency": ("performance.sandbox_latency", "cost of the sandbox"),
    "pocket-coder": ("performance.pocket_coder", "what the pocket coder writes before it is trained"),
    "throughput": ("performance.throughput", "cost of an environment step in training, ours and two plain loops'"),
    "scaling": ("performance.scaling", "how the cost of an environment step grows"),
    "ranks": ("performance.ranks", "a training in one process and in two ranks"),
    "vectors": ("performance.vectors", "steps of kitchens in this process, in others and in Ray actors"),
    "mismatch": ("performance.mismatch", "sampled against re-scored log-probabilities, and faults that are caught"),
    "memory": ("performance.memory", "estimates of memory against the bytes that trainings hold"),
    "real-size": ("performance.real_size", "models of real sizes with random weights"),
    "bfloat16": ("performance.bfloat16", "training in bfloat16 on a CPU, against float32"),
    "gpu": ("performance.gpu", "device tests, SmolLM2, kernels, memory and models of real size, within minutes"),
    "architectures": ("performance.architectures", "every causal architecture of transformers, as a tiny random model"),
    "theory": ("performance.theory", "the discount inside actions, exactly"),
    "keytoken": ("performance.theory", "POAD on KeyToken with other discounts inside actions"),
    "multikey-learning": ("performance.multikey_learning", "steps every method needs on MultiKey with one key"),
    "long-lists": ("performance.long_lists", "cost of a step with 64 to 4,096 listed actions"),
    "perplexity": ("performance.perplexity", "perplexity of texts before and after a training"),
    "installing": ("performance.installing", "the wheel in empty environments, with each extra alone"),
}
"""Module and help of each measurement, by name.

A module is imported at its first use; its function of that name, with underscores, measures.
"""
