"""`critic-noise`: noise of estimators with the critics of trainings, against the exact gradient."""

from __future__ import annotations

from benchmarks.studies.credit_truth.trainings import SHRUNK, Noise
from benchmarks.studies.tasks import ACTION_LEVEL, trie

_POAD = trie("POAD 1", "POAD", gae_lambda_token=1.0)
_MORE_EPOCHS = trie("POAD 1, 20 critic epochs", "POAD", gae_lambda_token=1.0, n_critic_epochs=20)
_LARGER_RATE = trie("POAD 1, critic rate 4e-3", "POAD", gae_lambda_token=1.0, critic_learning_rate=4e-3)

<<<<<<< HEAD

@dataclass(frozen=True)
class CriticNoiseJob(TrainingJob):
    """A training on MultiKey; estimators are compared with the exact gradient along the way.

    Attributes:
        estimators: Names of estimators, keys of `ESTIMATORS`.
        compared_every: Environment steps between two comparisons.
    """

    runner = "benchmarks.studies.critic_noise:run_critic_noise"
    estimators: tuple[str, ...] = ("action level",)
    compared_every: int = 1_024

    @property
    def label(self) -> str:
        return f"critic-noise_{super().label}"

    def outcome(self, result: Any) -> str:
        return f"success rate {result['success'][-1]}"


def policy_table(policy: LLMPolicy, problem: Problem) -> Floats:
    """Return the probability of the token that leads to each node of the trie, `[states, nodes]`."""
    timed = problem.timed
    parents, (nodes, _) = timed.mdp.trie.parents, timed.paths
    table = timed.policy(np.zeros(timed.n_logits))
    for state, (text, actions) in enumerate(problem.texts):
        by_text = policy.action_probabilities(text, list(actions))
        chances = np.array([by_text[action] for action in actions])
        reached = np.zeros(len(parents))
        reached[0] = chances.sum()
        for position in range(nodes.shape[1]):
            inside = nodes[:, position] >= 0
            np.add.at(reached, nodes[inside, position], chances[inside])
        is_reached = reached[parents] > 0
        table[state, is_reached] = (reached / np.where(is_reached, reached[parents], 1.0))[is_reached]
        table[state, 0] = 1.0
    return table


def critic_table(policy: LLMPolicy, problem: Problem) -> Floats:
    """Return the critic's value of each prefix, `[1, states, nodes]`."""
    timed = problem.timed
    parents, (nodes, lengths) = timed.mdp.trie.parents, timed.paths
    table = np.zeros((1, len(timed.mdp.rewards), len(parents)))
    for state, (text, actions) in enumerate(problem.texts):
        prompt = policy.distribution.prompt(Question(text, actions))
        token_values = policy.token_values([TokenPath(prompt, policy.lm.action_ids(action), ()) for action in actions])
        for action, values in enumerate(token_values.values):
            table[0, state, parents[nodes[action, : lengths[action]]]] = values
    return table


def shrunk_towards_state(critic: Floats, exact: Floats, weights: Floats) -> Floats:
    """Move values inside the action towards the value of the state as far as they do not predict returns.

    V'(o, w_<j) = V(o) + k (V(o, w_<j) - V(o)), with the slope k in [0, 1] of the regression of returns on the
    difference: 0 where values inside the action are noise, so that credit is the action's, 1 where they are right.

    Args:
        critic: Values of the nodes, the state's first, `[clocks or 1, states, nodes]`.
        exact: Expected returns from the nodes, `[clocks, states, nodes]`.
        weights: Expected visits of the nodes, `[clocks, states, nodes]`.
    """
    first = critic[:, :, :1]
    inside = np.broadcast_to(critic - first, exact.shape)
    power = (weights * inside**2).sum()
    slope = float((weights * inside * (exact - first)).sum() / power) if power else 0.0
    return np.asarray(first + min(1.0, max(0.0, slope)) * inside)


class NoiseWatch(BaseCallback):
    """Compares estimators with the exact gradient before some rollouts and after the last.

    Values are exact, the critic's, or the critic's inside the action or before it alone, and exact elsewhere.

    Attributes:
        steps: Environment steps of the comparisons.
        success: Success rate of the policy there, exact.
        nsr: Noise to signal by `ESTIMATOR | VALUES`, for each comparison; see `credit_truth.measuring.compared`.
        cosine: Cosine of the mean and the exact gradient, by the same names.
    """

    def __init__(self, problem: Problem, estimators: Sequence[str], every: int) -> None:
        super().__init__()
        self.problem, self.every = problem, every
        self.rows = [ESTIMATORS[name] for name in estimators]
        self.steps: list[int] = []
        self.success: list[float] = []
        self.nsr: dict[str, list[float | None]] = {}
        self.cosine: dict[str, list[float | None]] = {}

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps % self.every == 0:
            self._compare()

    def _on_training_end(self) -> None:
        self._compare()

    def _compare(self) -> None:
        assert isinstance(self.model.policy, LLMPolicy)
        timed, policy = self.problem.timed, policy_table(self.model.policy, self.problem)
        each, reachable = scores(timed, policy), visits(timed, policy)
        decisions, truth = decisions_of(timed, reachable), policy_gradients(timed, policy, GAMMA).run
        n_chosen = (np.abs(each).sum(axis=2) > 0).sum(axis=1)[decisions.pairs]
        self.steps.append(self.num_timesteps)
        right = (reachable[:, :, None] * timed.action_probabilities(policy) * self.problem.successes).sum(axis=(1, 2))
        self.success.append(round(float(right.prod()), 5))
        critic = critic_table(self.model.policy, self.problem)
        for row in self.rows:
            exact = timed_values(timed, policy, gamma=GAMMA, gamma_token=row.gamma_token).values
            tables = {"exact": exact, "critic": np.broadcast_to(critic, exact.shape)}
            if row.name == SHRUNK:
                weights = reachable[:, :, None] * timed.reached(policy)
                tables = {"critic": shrunk_towards_state(critic, exact, weights)}
            elif row.strategy.n_values(2) > 1:
                inside, before = exact.copy(), tables["critic"].copy()
                inside[:, :, 1:], before[:, :, 1:] = critic[:, :, 1:], exact[:, :, 1:]
                tables |= {"critic inside": inside, "critic before": before}
            counts = n_chosen if row.strategy.credit_level == "token" else np.ones_like(n_chosen)
            for kind, table in tables.items():
                values = path_values(timed, table, decisions)
                moments = exact_moments(timed, policy, each, decisions, reachable, row, values, counts)
                result = compared(moments, truth, float(reachable.sum()))
                for measure in ("nsr", "cosine"):
                    number = result[measure]
                    series = getattr(self, measure).setdefault(f"{row.name} | {kind}", [])
                    series.append(None if number is None else float(f"{number:.6g}"))


def run_critic_noise(job: CriticNoiseJob) -> dict[str, Any]:
    """Do a job on one thread.

    Returns:
        `steps`, and there `success`, `nsr` and `cosine`; see `NoiseWatch`. `returns` of sampled episodes at both ends.
    """
    problem = independent(job.env_id, share=False, **job.env_kwargs)
    watch = NoiseWatch(problem, job.estimators, job.compared_every)
    _, training = train_job(job, callbacks=[watch])
    return {
        "steps": watch.steps,
        "success": watch.success,
        "nsr": watch.nsr,
        "cosine": watch.cosine,
        "returns": [round(summary.mean_return, 5) for summary in training.summaries],
        "cpu_seconds": round(training.cpu_seconds, 1),
    }


def _job(name: str, seed: int) -> CriticNoiseJob:
    arm, rate, estimators = ARMS[name]
    ends = Evaluation(every=MULTIKEY.steps, episodes=50)
    job = replace(MULTIKEY.job(arm.algorithm, seed, **{**arm.arguments, "learning_rate": rate}), evaluation=ends)
    return CriticNoiseJob(**vars(job), estimators=estimators)


def _jobs(options: Options, pieces: Pieces) -> Iterator[CriticNoiseJob]:
    options.chosen_tasks((MULTIKEY.name,))
    for seed in options.checked_seeds() if not options.tuning_only else ():
        yield from (_job(name, seed) for name in ARMS)


# ---------------------------------------------------------------------- the report


def _over_seeds(columns: Sequence[Sequence[float]]) -> dict[str, list[float]]:
    """Return median, least and most over the seeds, of numbers `[seeds, comparisons]`."""
    numbers = np.array(columns, dtype=np.float64)
    series = {"median": np.median(numbers, axis=0), "least": numbers.min(axis=0), "most": numbers.max(axis=0)}
    return {name: [float(f"{number:.4g}") for number in row] for name, row in series.items()}


def _summary(runs: Mapping[int, Piece], names: Mapping[int, str]) -> dict[str, Any]:
    """Summarize noise for the report: relative to the reference at the same policy, then over the seeds."""
    noises = list(runs.values())
    relative = {
        key: [np.divide(run["nsr"][key], run["nsr"][REFERENCE]).tolist() for run in noises] for key in noises[0]["nsr"]
    }
    return {
        "runs": {str(seed): names[seed] for seed in runs},
        "seeds": list(runs),
        "steps": noises[0]["steps"],
        "success": _over_seeds([run["success"] for run in noises]),
        "noise": {key: _over_seeds(columns) for key, columns in relative.items()},
        "cosine": {key: _over_seeds([run["cosine"][key] for run in noises]) for key in noises[0]["cosine"]},
        "reference": _over_seeds([run["nsr"][REFERENCE] for run in noises]),
    }


def _report(options: Options, pieces: Pieces) -> Report:
    content: dict[str, Any] = {"gamma": GAMMA, "gae_lambda": LAMBDA, "missing": [], "trainings": {}}
    content["seeds"], content["reference"] = list(options.seeds), REFERENCE
    lines = []
    for name, (_, rate, _) in ARMS.items():
        jobs = {seed: _job(name, seed) for seed in options.checked_seeds()}
        runs = {seed: piece for seed, job in jobs.items() if (piece := pieces.find(job)) is not None}
        content["missing"] += [f"{name}: seed {seed}" for seed in jobs if seed not in runs]
        if runs:
            summary = _summary(runs, {seed: jobs[seed].name for seed in runs})
            content["trainings"][name] = {"learning_rate": rate, **summary}
            ends = ", ".join(f"{key} {series['median'][-1]}" for key, series in summary["noise"].items())
            lines.append(f"Training of {name}, noise relative to {REFERENCE} at the end: {ends}")
    pictures = {"": noise_figure(content["trainings"])} if content["trainings"] else {}
    return Report(content, pictures, lines + [f"Missing: {missing}" for missing in content["missing"]])


def noise_table(name: str, training: Mapping[str, Any]) -> Table:
    """Return the table of a training, a column for each comparison; medians over seeds.

    Rows are the success rate, relative noise, and cosines below 1.
    """
    series = {key.replace(" | exact", ", exact values"): noise for key, noise in training["noise"].items()}
    series |= {
        f"cosine, {key}": cosine
        for key, cosine in training["cosine"].items()
        if key.endswith("| critic") and min(cosine["median"]) < 1
    }
    shown = {
        key.replace(" | ", ", "): noise["median"] for key, noise in series.items() if set(noise["median"]) != {1.0}
    }
    rows = {"success rate": training["success"]["median"], **shown}
    head = ("after steps", *(f"{step:,}" for step in training["steps"]))
    cells = [(key, *(f"{number:.2g}" for number in numbers)) for key, numbers in rows.items()]
    return Table(f"Training of {name}", head, cells)


@style()
def noise_figure(trainings: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw relative noise along each training: medians over seeds, their range, dashed with exact values."""
    columns = min(3, len(trainings))
    rows = -(-len(trainings) // columns)
    figure = Figure(figsize=(1 + 3.6 * columns, 0.9 + 2.9 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    names, drawn = list(ESTIMATORS), {}
    for axes in grid.flat[len(trainings) :]:
        axes.set_axis_off()
    for axes, (title, training) in zip(grid.flat, trainings.items(), strict=False):
        for key, series in training["noise"].items():
            estimator, _, kind = key.partition(" | ")
            if kind not in ("exact", "critic"):
                continue
            color, line = PALETTE[names.index(estimator)], "--" if kind == "exact" else "-"
            label = f"{estimator}, {'exact values' if kind == 'exact' else 'critic'}"
            (drawn[label],) = axes.plot(training["steps"], series["median"], line, color=color)
            if kind == "critic":
                axes.fill_between(
                    training["steps"], series["least"], series["most"], color=color, alpha=0.15, linewidth=0
                )
        axes.set(title=f"training of {title}", xlabel="environment steps (actions)", yscale="log")
    for axes in grid[:, 0]:
        axes.set_ylabel("noise to signal, relative to\naction level, exact values")
    figure.legend(drawn.values(), drawn, loc="outside lower center", ncols=4)
    return figure


CRITIC_NOISE = Study(
=======
CRITIC_NOISE = Noise(
>>>>>>> cut-studies
    "critic-noise",
    "noise of action level, BAD and NTPO with the critics of real trainings on MultiKey",
    {  # rates as chosen by `lambda-token`
        "POAD 1": (_POAD, 4e-3, ("action level", "BAD 1", "BAD 0.8")),
        "NTPO 0.95": (trie("NTPO 0.95", "NTPO", gae_lambda_token=0.95), 2e-3, ("action level", "NTPO 0.95")),
        "action level": (ACTION_LEVEL, 4e-3, ("action level",)),
        "POAD 1, shrunk": (_POAD, 4e-3, ("action level", SHRUNK)),
        _MORE_EPOCHS.name: (_MORE_EPOCHS, 4e-3, ("action level", "BAD 1", SHRUNK)),
        _LARGER_RATE.name: (_LARGER_RATE, 4e-3, ("action level", "BAD 1", SHRUNK)),
    },
    seeds=tuple(range(400, 404)),
)
