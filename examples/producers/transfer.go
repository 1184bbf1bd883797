// Sends one transaction with franz-go.
package main

import (
	"context"
	"encoding/json"

	"github.com/twmb/franz-go/pkg/kgo"
)

type object map[string]any

func main() {
	value, _ := json.Marshal(object{"parts": []object{
		{"key": "acct-1", "value": `{"debit":"10 €"}`},
		{"address": "payments", "headers": []object{{"name": "type", "value": "credit"}},
			"key": "acct-2", "value_base64": []byte{0, 1, 255}}, // Go writes []byte as base64
	}})
	record := &kgo.Record{Topic: "transfers", Key: []byte("acct-1"), Value: value, Headers: []kgo.RecordHeader{
		{Key: "_RF_TX", Value: []byte("json/1")}, {Key: "_AMQ_DUPL_ID", Value: []byte("pay-4711")}}}
	client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"))
	if err == nil {
		err = client.ProduceSync(context.Background(), record).FirstErr()
	}
	if err != nil {
		panic(err) // send it again, as it was
	}
}
