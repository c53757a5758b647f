/**
 * Advantages of all tokens of an episode from its rewards and values, as `poad_sb3.credit.advantages` computes them.
 * Actions are arrays of tokens of any length: `values[t][j]` is the value before token j of action t.
 */

/** Generalised advantage estimation over one sequence, with a discount and a lambda of each entry. */
export function gae(rewards, values, nextValues, discounts, lambdas) {
  const advantages = new Array(values.length);
  let running = 0;
  for (let k = values.length - 1; k >= 0; k -= 1) {
    running = rewards[k] + discounts[k] * nextValues[k] - values[k] + discounts[k] * lambdas[k] * running;
    advantages[k] = running;
  }
  return advantages;
}

/**
 * Token GAE: BAD with gammaToken = 1, NTPO with gammaToken = gamma.
 * @param {{rewards: number[], values: number[][], finalValue: number, gamma: number, lambda: number,
 *   gammaToken: number, lambdaToken: number}} episode
 */
export function tokenGae({ rewards, values, finalValue, gamma, lambda, gammaToken, lambdaToken }) {
  const flat = [[], [], [], [], []];
  values.forEach((row, t) => {
    const isEnd = t === values.length - 1;
    row.forEach((value, j) => {
      const isLast = j === row.length - 1;
      const next = isLast ? (isEnd ? finalValue : values[t + 1][0]) : row[j + 1];
      const entry = [
        isLast ? rewards[t] : 0,
        value,
        next,
        isLast ? gamma : gammaToken,
        isLast ? (isEnd ? 0 : lambda) : lambdaToken,
      ];
      entry.forEach((one, i) => flat[i].push(one));
    });
  });
  return unflattened(gae(...flat), values);
}

/** GAE over whole actions: one advantage for all tokens of an action. */
export function actionGae(episode) {
  const whole = tokenGae({ ...episode, values: episode.values.map((row) => [row[0]]) });
  return episode.values.map((row, t) => row.map(() => whole[t][0]));
}

/** Bi-level GAE: over actions first, then inside each action towards the return of that action. */
export function bilevelGae(episode) {
  const whole = actionGae(episode);
  return episode.values.map(
    (row, t) =>
      tokenGae({ ...episode, rewards: [whole[t][0] + row[0]], values: [row], finalValue: 0, gamma: 1, lambda: 0 })[0],
  );
}

function unflattened(flat, values) {
  let start = 0;
  return values.map((row) => flat.slice(start, (start += row.length)));
}

/** The estimator that reads the slider of gamma_token. */
export const OWN = "own \u03b3_token";

/** The estimators that are computed in the page, by name. */
export const RULES = [
  { name: "POAD", about: "BAD: no discount inside an action", compute: (e) => tokenGae({ ...e, gammaToken: 1 }) },
  { name: "NTPO", about: "gamma at every token", compute: (e) => tokenGae({ ...e, gammaToken: e.gamma }) },
  { name: "action-level", about: "one advantage for an action: TWOSOME, turn-level PPO", compute: actionGae },
  {
    name: "bi-level",
    about: "over actions, then inside each action",
    compute: (e) => bilevelGae({ ...e, gammaToken: 1 }),
  },
  { name: OWN, about: "token GAE with the gamma_token of the slider", compute: (e) => tokenGae(e) },
];
