// Written by `sparkop connect pi`. `sparkop connect pi --undo` takes it away; without it the limit is back.
//
// Requests to one provider go out without a limit on the answer's length, so that an answer ends when the
// model ends it. Every other provider's requests stay as they are.

const OURS = "@SETTINGS@";
const LIMITS = ["max_tokens", "max_completion_tokens"];

/** The request body without limits; undefined when it has none. */
function withoutLimits(body) {
  if (!body || typeof body !== "object" || !LIMITS.some((name) => name in body)) return undefined;
  const kept = { ...body };
  for (const name of LIMITS) delete kept[name];
  return kept;
}

/** Server and path, as fetch spells them: small letters, no default port. */
function place(url) {
  const { origin, pathname } = new URL(url);
  return origin + pathname;
}

/** The arguments of fetch, without limits when the request goes to one of our servers. */
function changed(input, init, servers) {
  if (typeof init?.body !== "string") return init;
  try {
    const url = place(String(input?.url ?? input));
    const ours = [...servers.values()].filter(({ baseUrl }) => url === place(`${baseUrl}/chat/completions`));
    if (ours.length === 0) return init;
    const body = JSON.parse(init.body);
    const kept = ours.some(({ model }) => body?.model === model) ? withoutLimits(body) : undefined;
    return kept ? { ...init, body: JSON.stringify(kept) } : init;
  } catch {
    return init;
  }
}

export default function (pi) {
  pi.on("before_provider_request", (event, ctx) =>
    ctx.model?.provider === OURS.provider ? withoutLimits(event.payload) : undefined,
  );

  // Pi asks extensions about a session's own requests only. Summaries (compaction, branches) are sent
  // unasked, so the limit is taken out where every request passes. One wrapper, also after /reload.
  const shared = (globalThis[Symbol.for("sparkop.servers")] ??= new Map());
  if (shared.size === 0) {
    const send = globalThis.fetch;
    globalThis.fetch = (input, init) => send(input, changed(input, init, shared));
  }
  shared.set(OURS.provider, OURS);
}
