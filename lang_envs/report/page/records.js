/** An episode as text, and as the lines of a results file. */

import { short, signed } from "./dom.js";

/** The first line of a file with the steps of this episode alone. */
export function headerOf(row, episode) {
  return {
    format: 1,
    content: "steps",
    agent: { name: row.agent },
    envs: [{ id: episode.env, discount: row.origin.discount }],
    env_settings: row.origin.env_settings,
    episodes: row.episode + 1,
    seeds: [row.seed],
    ...(row.at === null ? {} : { training: true }),
  };
}

/** The lines of the steps, with the names of a results file; numbers are rounded as in this page, advantages left out. */
export function linesOf(row, episode) {
  const at = row.at === null ? {} : { training_steps: row.at };
  return episode.actions.map((action, t) => {
    const isLast = t === episode.actions.length - 1;
    const line = {
      env: episode.env,
      seed: row.seed,
      episode: row.episode,
      ...at,
      step: t,
      observation: episode.observations[t],
      admissible_actions: episode.admissible[t],
      action,
      invalid: Boolean(episode.invalid[t]),
      reward: episode.rewards[t],
      success: episode.successes
        ? episode.successes[t]
        : isLast
          ? row.success === null
            ? null
            : row.success === 1
          : false,
      moves: episode.moves[t],
      note: episode.notes[t] || "",
      terminated: isLast && Boolean(row.terminated),
      truncated: isLast && Boolean(row.truncated),
    };
    const more = {
      tokens: episode.tokens,
      log_probs: episode.logProbs,
      values: episode.values,
      token_options: episode.options,
      entropies: episode.entropies,
      alternatives: episode.alternatives,
      prompt_tokens: episode.prompts,
      action_probs: episode.shares,
    };
    for (const [name, rows] of Object.entries(more)) if (rows?.[t]) line[name] = rows[t];
    const credits = Object.entries(episode.credits).filter(([, rows]) => rows[t]);
    if (credits.length) line.credits = Object.fromEntries(credits.map(([name, rows]) => [name, rows[t]]));
    if (episode.code)
      Object.assign(
        line,
        Object.fromEntries(
          Object.entries(episode.code[t]).filter(([, value]) => value !== null && value !== undefined),
        ),
      );
    if (isLast && episode.finalObservation !== null) line.final_observation = episode.finalObservation;
    if (isLast && episode.finalValue !== null) line.final_value = episode.finalValue;
    return line;
  });
}

/** An episode as one JSON object, which `lang-envs replay FILE` plays again. */
export function replayable(row, episode) {
  const at = row.at === null ? {} : { training_steps: row.at };
  return {
    format: 1,
    content: "episode",
    env: row.origin.env,
    env_settings: row.origin.env_settings,
    agent: row.agent,
    seed: row.seed,
    episode: row.episode,
    ...at,
    reset_seed: row.resetSeed,
    return: row.return,
    steps: episode.actions.map((action, t) => ({
      observation: episode.observations[t],
      action,
      reward: episode.rewards[t],
    })),
  };
}

/** The episode as plain text. */
export function textOf(row, episode) {
  const steps = episode.actions.map(
    (action, t) => `Step ${t + 1}, reward ${signed(episode.rewards[t])}\n${episode.observations[t]}\n> ${action}\n`,
  );
  const end = episode.finalObservation === null ? "" : `${episode.finalObservation}\n`;
  return `${row.agent} on ${row.task}, seed ${row.seed}, episode ${row.episode}: return ${short(row.return)}\n\n${steps.join("\n")}\n${end}`;
}
