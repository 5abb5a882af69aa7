// A small agent on OpenAI's SDK for JavaScript, as its documentation shows one: the library's own tool loop, streamed, then once
// more plain.

import { writeFileSync } from "node:fs";
import OpenAI from "openai";

const [url, model, prompt] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: "none" });
let written = 0;
const tools = [
  {
    type: "function",
    function: {
      name: "write_file",
      description: "Writes a file.",
      parameters: {
        type: "object",
        properties: { path: { type: "string" }, content: { type: "string" } },
        required: ["path", "content"],
      },
      parse: JSON.parse,
      function: ({ path, content }) => {
        writeFileSync(path, content);
        written += 1;
        return "written";
      },
    },
  },
];

const messages = [{ role: "user", content: prompt }];
const streamed = client.chat.completions.runTools({ model, stream: true, messages, tools });
console.log(await streamed.finalContent());
const more = [...streamed.messages, { role: "user", content: "Is it done?" }];
const plain = client.chat.completions.runTools({ model, messages: more, tools });
console.log(await plain.finalContent());
if (written === 0) throw new Error("no call came");
