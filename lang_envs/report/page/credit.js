/**
 * Advantages of all tokens of an episode from its rewards and values, as `poad_sb3.credit.advantages` computes them.
 * Actions are arrays of tokens of any length: `values[t][j]` is the value before token j of action t.
 */

/**
 * Token GAE: BAD with gammaToken = 1, NTPO with gammaToken = gamma. A token without an alternative is passed over.
 * @param {{rewards: number[], values: number[][], finalValue: number, gamma: number, lambda: number,
 *   gammaToken: number, lambdaToken: number, decisions: boolean[][] | null}} episode
 */
export function tokenGae({ rewards, values, finalValue, gamma, lambda, gammaToken, lambdaToken, decisions }) {
  const advantages = values.map((row) => new Array(row.length));
  for (let t = values.length - 1; t >= 0; t -= 1) {
    const isEnd = t === values.length - 1;
    let [reward, discount, nextValue] = [rewards[t], gamma, isEnd ? finalValue : values[t + 1][0]];
    let [decay, nextAdvantage, isLastDecision] = [isEnd ? 0 : lambda, isEnd ? 0 : advantages[t + 1][0], true];
    for (let j = values[t].length - 1; j >= 0; j -= 1) {
      const isDecision = !decisions || decisions[t][j];
      if (!isLastDecision) decay = isDecision ? lambdaToken : 1;
      const value = values[t][j];
      advantages[t][j] = reward + discount * nextValue - value + discount * decay * nextAdvantage;
      if (isDecision) {
        [reward, discount, nextValue, nextAdvantage, isLastDecision] = [0, gammaToken, value, advantages[t][j], false];
      } else {
        [reward, discount] = [gammaToken * reward, gammaToken * discount];
      }
    }
  }
  return advantages;
}

/** GAE over whole actions: one advantage for all tokens of an action. */
export function actionGae(episode) {
  const whole = tokenGae({ ...episode, decisions: null, values: episode.values.map((row) => [row[0]]) });
  return episode.values.map((row, t) => row.map(() => whole[t][0]));
}

/** Bi-level GAE: over actions first, then inside each action towards the return of that action. */
export function bilevelGae(episode) {
  const whole = actionGae(episode);
  return episode.values.map((row, t) => {
    const decisions = episode.decisions && [episode.decisions[t]];
    const action = { rewards: [whole[t][0] + row[0]], values: [row], finalValue: 0, gamma: 1, lambda: 0, decisions };
    return tokenGae({ ...episode, ...action })[0];
  });
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
