"""The rows of `python -m benchmarks measure`: modules of this package, and one line of help."""

MEASUREMENTS = {
    "demo": ("studies.demo", "POAD on Tomato Salad with the pocket model: table, curve and GIF"),
    "env-scores": ("performance.env_scores", "exact scores of random and of optimal play"),
    "datasci-scores": ("performance.datasci_scores", "scores of the oracle and of random code on DataSciCoding"),
    "datasci-baselines": ("references.datasci_baselines", "plain scikit-learn on the tables of DataSciCoding"),
    "sandbox-latency": ("performance.sandbox_latency", "cost of the sandbox"),
    "throughput": ("performance.throughput", "cost of an environment step in training, ours and a plain loop's"),
    "ranks": ("performance.ranks", "a training in one process and in two ranks"),
    "memory": ("performance.memory", "estimates of memory against the bytes that trainings hold"),
    "real-size": ("performance.real_size", "models of real sizes with random weights"),
    "bfloat16": ("performance.bfloat16", "training in bfloat16 on a CPU, against float32"),
    "gpu": ("performance.gpu", "device tests, SmolLM2, kernels, memory and models of real size, within minutes"),
    "architectures": ("performance.architectures", "every causal architecture of transformers, as a tiny random model"),
    "engines": ("performance.engines", "tokens a second of the own decoding and of vLLM"),
    "beside-trl": ("performance.beside_trl", "training by TRL's GRPOTrainer and by this library, in turns"),
    "theory": ("performance.theory", "the discount inside actions, exactly"),
    "cloned-thoughts": (
        "studies.cloned_thoughts",
        "return of SmolLM2 on Parity after cloning, with and without thoughts",
    ),
    "multikey-learning": ("performance.multikey_learning", "steps every method needs on MultiKey with one key"),
    "perplexity": ("performance.perplexity", "perplexity of texts before and after a training"),
    "installing": ("performance.installing", "the wheel in empty environments, with each extra alone"),
}
"""Module and help of each measurement, by name.

A module is imported at its first use; its function of that name, with underscores, measures.
"""
