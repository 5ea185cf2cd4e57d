// Backends of hooks.
import { website } from './harness.mjs';

export const secret = '0123456789abcdef';

/** A backend that answers with what `answer` gives for each question, or with 500 while `fails`, or lets `respond` handle the request. */
export async function backend(t, { answer = () => ({}), fails = () => false, respond } = {}) {
  const seen = [];
  const url = await website(t, async (request, response) => {
    const body = Buffer.concat(await request.toArray());
    const { questions } = JSON.parse(body);
    seen.push({ headers: request.headers, body, questions, method: request.method, url: request.url });
    if (fails()) return response.writeHead(500).end();
    if (respond) return respond(response, questions);
    const answers = await Promise.all(questions.map(async (question) => ({ id: question.id, ...await answer(question) })));
    response.end(JSON.stringify({ answers }));
  });
  return { url: `${url}/hooks?a=1`, seen };
}

// Servers that tests start wait for backends longer than a busy machine keeps these waiting.
process.env.STENTOR_LIMITS_DECISION_TIMEOUT = '60s';

/** The configuration of a hook, with a long timeout unless `more` has one. */
export function hook(name, url, more = '') {
  const timeout = /^timeout = /m.test(more) ? '' : 'timeout = "50s"\n';
  return `[[hooks]]\nname = "${name}"\nurl = "${url}"\n${timeout}${more}\n`;
}

/** A backend of notices, which `respond` takes or refuses; returns its URL. */
export const noticeBackend = (t, respond) => website(t, async (request, response) => respond(Buffer.concat(await request.toArray()), response, request));
