// Publishes to a stream and consumes from it, with a durable consumer that goes on where it was.
import { connect } from "@nats-io/transport-node";
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";

const nc = await connect({ servers: process.env.NATS_URL ?? "nats://127.0.0.1:4222", maxReconnectAttempts: -1 });
const js = jetstream(nc);
const jsm = await jetstreamManager(nc);
await jsm.streams.add({ name: "NODE_GREETINGS", subjects: ["node.greetings.>"] });
await jsm.consumers.add("NODE_GREETINGS", { durable_name: "reader", ack_policy: AckPolicy.Explicit });

for (const name of ["ada", "grace", "barbara"]) {
  const ack = await js.publish(`node.greetings.${name}`, `hello ${name}`);
  console.log(`message ${ack.seq} is on disk`);
}
const reader = await js.consumers.get("NODE_GREETINGS", "reader");
const batch = await reader.fetch({ max_messages: 3, expires: 5000 });
for await (const m of batch) {
  console.log(`${m.subject}: ${m.string()}`);
  await m.ackAck(); // as ack, but certain when it returns
}
await nc.drain();
