// Sends one transaction with Confluent.Kafka.
using System.Text;
using System.Text.Encodings.Web;
using System.Text.Json;
using Confluent.Kafka;

object[] parts = [
    new { key = "acct-1", value = "{\"debit\":\"10 €\"}" },
    new { address = "payments", headers = new[] { new { name = "type", value = "credit" } },
        key = "acct-2", value_base64 = new byte[] { 0, 1, 255 } },  // .NET writes bytes as base64
];
var options = new JsonSerializerOptions { Encoder = JavaScriptEncoder.UnsafeRelaxedJsonEscaping };
var message = new Message<string, byte[]> {
    Key = "acct-1", Value = JsonSerializer.SerializeToUtf8Bytes(new { parts }, options),
    Headers = new Headers {
        { "_RF_TX", Encoding.UTF8.GetBytes("json/1") }, { "_AMQ_DUPL_ID", Encoding.UTF8.GetBytes("pay-4711") } },
};
var config = new ProducerConfig {
    BootstrapServers = "127.0.0.1:9092", Acks = Acks.All, Partitioner = Partitioner.Murmur2Random };
using var producer = new ProducerBuilder<string, byte[]>(config).Build();
await producer.ProduceAsync("transfers", message);  // an exception: send it again, as it was
