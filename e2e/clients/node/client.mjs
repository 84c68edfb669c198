// What the official JavaScript client does against a server: requests, an ordered consumer, a durable one with
// acknowledgements, KV with a watch and compare-and-set, an object store round trip. Usage: node client.mjs URL.
// A ws:// URL goes through WebSocket. It prints one line for each step and ends with "ok".
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import WebSocket from "ws";
import { connect, wsconnect } from "@nats-io/transport-node";
import { AckPolicy, DiscardPolicy, jetstream, jetstreamManager, RetentionPolicy } from "@nats-io/jetstream";
import { Kvm } from "@nats-io/kv";
import { Objm } from "@nats-io/obj";

const url = process.argv[2];
globalThis.WebSocket ??= WebSocket;
const nc = await (url.startsWith("ws") ? wsconnect : connect)({ servers: url, name: "node client", maxReconnectAttempts: 0 });
const step = (name) => console.log(name);

async function core() {
  const sub = nc.subscribe("node.echo", { queue: "q" });
  (async () => {
    for await (const m of sub) m.respond(m.data);
  })();
  const answer = await nc.request("node.echo", "hello", { timeout: 5000 });
  assert.equal(answer.string(), "hello");
  await assert.rejects(nc.request("node.nobody", "", { timeout: 5000 }), /no responders/i);
  sub.unsubscribe();
  step("core");
}

async function streams() {
  const jsm = await jetstreamManager(nc);
  const js = jetstream(nc);
  await jsm.streams.add({ name: "NODE", subjects: ["node.s.>"], discard: DiscardPolicy.New });
  const acks = await Promise.all(Array.from({ length: 500 }, (_, i) => js.publish(`node.s.${i % 5}`, `m${i}`, { msgID: `id${i}` })));
  assert.deepEqual(acks.map((a) => a.seq).sort((a, b) => a - b), Array.from({ length: 500 }, (_, i) => i + 1));
  assert.equal((await js.publish("node.s.0", "again", { msgID: "id0" })).duplicate, true);
  await assert.rejects(js.publish("node.s.0", "", { expect: { lastSequence: 3 } }), /wrong last sequence: 500/);

  const ordered = await js.consumers.get("NODE", { filter_subjects: ["node.s.3"] });
  let seen = 0;
  for await (const m of await ordered.consume()) {
    assert.equal(m.subject, "node.s.3");
    if (++seen === 100) break;
  }
  step("ordered consumer");

  await jsm.consumers.add("NODE", { durable_name: "D", ack_policy: AckPolicy.Explicit, ack_wait: 30_000_000_000 });
  const durable = await js.consumers.get("NODE", "D");
  let acked = 0;
  for await (const m of await durable.fetch({ max_messages: 300, expires: 10_000 })) {
    if (m.seq % 100 === 0 && !m.redelivered) m.nak();
    else {
      assert.equal(await m.ackAck(), true);
      acked++;
    }
  }
  const info = await durable.info();
  assert.equal(info.num_pending + info.num_ack_pending + acked, 500);
  step("durable consumer");

  await jsm.streams.add({ name: "NODEWQ", subjects: ["node.wq"], retention: RetentionPolicy.Workqueue });
  await assert.rejects(jsm.consumers.add("NODEWQ", { durable_name: "X", ack_policy: AckPolicy.None }), /explicit ack/);
  assert.equal((await jsm.getAccountInfo()).streams >= 2, true);
}

async function kv() {
  const bucket = await new Kvm(nc).create("node", { history: 5 });
  const seen = [];
  const watch = await bucket.watch();
  const watching = (async () => {
    for await (const e of watch) {
      seen.push(`${e.key}=${e.operation === "PUT" ? e.string() : e.operation}`);
      if (seen.length === 4) break;
    }
  })();
  await bucket.put("a", "1");
  const revision = await bucket.create("b", "2");
  await bucket.update("b", "3", revision);
  await assert.rejects(bucket.update("b", "4", revision), /wrong last sequence/);
  await bucket.delete("a");
  await watching;
  assert.deepEqual(seen, ["a=1", "b=2", "b=3", "a=DEL"]);
  const keys = [];
  for await (const k of await bucket.keys()) keys.push(k);
  assert.deepEqual(keys, ["b"]);
  step("kv");
}

async function objects() {
  const store = await new Objm(nc).create("node");
  const data = randomBytes(1_000_000);
  const info = await store.putBlob({ name: "blob", options: { max_chunk_size: 64 * 1024 } }, data);
  assert.equal(info.digest, `SHA-256=${createHash("sha256").update(data).digest("base64url")}=`);
  assert.deepEqual(Buffer.from(await store.getBlob("blob")), data);
  await store.delete("blob");
  assert.equal((await store.info("blob")).deleted, true);
  step("object store");
}

await core();
await streams();
await kv();
await objects();
await nc.drain();
step("ok");
process.exit(0);
