// Sends one transaction with kafkajs.
const { Kafka, Partitioners } = require("kafkajs");

const parts = [
  { key: "acct-1", value: JSON.stringify({ debit: "10 €" }) },
  { address: "payments", headers: [{ name: "type", value: "credit" }],
    key: "acct-2", value_base64: Buffer.from([0, 1, 255]).toString("base64") },
];
const message = { key: "acct-1", value: JSON.stringify({ parts }),
  headers: { _RF_TX: "json/1", _AMQ_DUPL_ID: "pay-4711" } };

async function main() {
  const kafka = new Kafka({ brokers: ["127.0.0.1:9092"] });
  const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner });
  await producer.connect();
  // An error: send it again, as it was.
  await producer.send({ topic: "transfers", acks: -1, messages: [message] });
  await producer.disconnect();
}
main();
