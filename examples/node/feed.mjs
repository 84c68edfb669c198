// Follows a stream by HTTP alone, without a NATS library: server-sent events, read with fetch. (A browser has EventSource,
// which comes back by itself: examples/feed/page.html.) The connection is dropped in the middle on purpose.
import { connect } from "@nats-io/transport-node";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";

const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222" });
const jsm = await jetstreamManager(nc);
await jsm.streams.add({ name: "NODE_TICKS", subjects: ["node.ticks.>"], max_msgs: 1000 });
const js = jetstream(nc);
const first = (await js.publish("node.ticks.a", "tick 1")).seq;
for (let i = 2; i <= 5; i++) await js.publish("node.ticks.a", `tick ${i}`);
await nc.drain();

// events yields the events of a feed that come behind the event lastId.
async function* events(url, lastId, signal) {
  const headers = { Accept: "text/event-stream", "Last-Event-ID": String(lastId) };
  const response = await fetch(url, { headers, signal });
  if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
  let text = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const blocks = (text + chunk).split("\n\n");
    text = blocks.pop(); // not whole yet
    for (const block of blocks) {
      const event = { name: "message", data: [] };
      for (const line of block.split("\n")) {
        const [, field, value] = /^([^:]*): ?(.*)$/.exec(line) ?? [];
        if (field === "data") event.data.push(value);
        else if (field === "event") event.name = value;
        else if (field === "id") event.id = value;
      }
      if (event.data.length > 0) yield { ...event, data: event.data.join("\n") };
    }
  }
}

const url = `${process.env.MONITOR_URL ?? "http://127.0.0.1:8222"}/feed/$G/NODE_TICKS?filter=node.ticks.*`;
let last = first - 1;
for (const wanted of [2, 3]) {
  const connection = new AbortController();
  let n = 0;
  for await (const e of events(url, last, connection.signal)) {
    if (e.name !== "message") throw new Error(`${e.name}: ${e.data}`);
    console.log(`event ${e.id - first + 1}: ${e.data}`);
    last = e.id;
    if (++n === wanted) break;
  }
  connection.abort();
  console.log("the connection is gone");
}
