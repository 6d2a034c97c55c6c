// Uses the types that openapi-typescript made, with openapi-fetch; what is not in them does not compile.
import createClient from "openapi-fetch";
import type { paths } from "./document";

const [baseUrl, token] = [process.argv[2], process.env.TOKEN];
const client = createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });

function holds(what: boolean, said: unknown): asserts what {
  if (!what) throw new Error(JSON.stringify(said));
}

const echo = await client.POST("/tools/it__structured_echo", { body: { text: "hi" } });
holds(echo.response.status === 200 && echo.data !== undefined, echo);
holds("structuredContent" in echo.data && echo.data.structuredContent?.text === "hi", echo.data);

const slow = await client.POST("/tools/it__slow", {
  params: { header: { Prefer: "respond-async" } },
  body: { ms: 50 },
});
holds(slow.data !== undefined && "_meta" in slow.data, slow);
const meta = slow.data._meta;
holds(meta !== undefined && "promise_token" in meta && meta.promise_token !== undefined, meta);
const redeemed = await client.POST("/tools/redeem", { body: { promise: meta.promise_token } });
holds(redeemed.response.ok, redeemed);

// @ts-expect-error: the document says what the arguments are
const wrong = await client.POST("/tools/it__echo", { body: { text: 7 } });
holds(wrong.response.status === 400 && wrong.error?.error.code === -32602, wrong);
console.log("the client in TypeScript calls, redeems and is refused");
