// driver send|push|simple ENDPOINTS TOPIC COUNT [name=value ...], see five.py.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	sdk "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

const name = "日本 é 😀"
const retryPause = 500 * time.Millisecond

var (
	endpoints, topic string
	count            int
	options          = map[string]string{}
	printing         sync.Mutex
)

type report struct {
	Event   string `json:"event"`
	Number  int    `json:"number"`
	Digest  string `json:"digest,omitempty"`
	Attempt int32  `json:"attempt"`
	At      int64  `json:"at"`
	Due     int64  `json:"due"`
	Count   int    `json:"count"`
	Error   string `json:"error,omitempty"`
}

func main() {
	os.Setenv("rocketmq.client.logRoot", os.Getenv("HOME"))
	sdk.ResetLogger()
	endpoints, topic = os.Args[2], os.Args[3]
	count, _ = strconv.Atoi(os.Args[4])
	for _, option := range os.Args[5:] {
		key, value, _ := strings.Cut(option, "=")
		options[key] = value
	}
	sdk.EnableSsl = options["tls"] == "true"
	switch os.Args[1] {
	case "send":
		send()
	case "push":
		push()
	default:
		simple()
	}
}

func number(key string, otherwise int) int {
	value, err := strconv.Atoi(options[key])
	if err != nil {
		return otherwise
	}
	return value
}

func say(what report) {
	printing.Lock()
	defer printing.Unlock()
	line, _ := json.Marshal(what)
	fmt.Println(string(line))
}

func check(err error) {
	if err != nil {
		say(report{Event: "failed", Error: err.Error()})
		os.Exit(1)
	}
}

func configuration() *sdk.Config {
	return &sdk.Config{Endpoint: endpoints, ConsumerGroup: options["group"], Credentials: &credentials.SessionCredentials{}}
}

func message(i int) *sdk.Message {
	made := &sdk.Message{
		Topic: topic,
		Body:  []byte(fmt.Sprintf("message %d 日本語 é 😀 %s", i, strings.Repeat("x", i%200))),
	}
	made.SetTag(fmt.Sprintf("Tag%d", i%3))
	made.SetKeys(fmt.Sprintf("Key%d", i))
	made.AddProperty("number", strconv.Itoa(i))
	made.AddProperty("name", name)
	switch options["kind"] {
	case "fifo":
		made.SetMessageGroup(fmt.Sprintf("group%d", i%4))
	case "delay", "recall":
		made.SetDelayTimestamp(time.Now().Add(time.Duration(number("delay", 0)) * time.Millisecond))
	}
	return made
}

func numberOf(message *sdk.MessageView) int {
	i, _ := strconv.Atoi(message.GetProperties()["number"])
	return i
}

func sayReceived(message *sdk.MessageView) {
	digest := sha256.New()
	digest.Write(message.GetBody())
	tag := ""
	if message.GetTag() != nil {
		tag = *message.GetTag()
	}
	properties := message.GetProperties()
	for _, part := range []string{tag, strings.Join(message.GetKeys(), " "), properties["number"], properties["name"]} {
		digest.Write([]byte{0})
		digest.Write([]byte(part))
	}
	due := int64(0)
	if message.GetDeliveryTimestamp() != nil {
		due = message.GetDeliveryTimestamp().UnixMilli()
	}
	say(report{Event: "received", Number: numberOf(message), Digest: hex.EncodeToString(digest.Sum(nil)),
		Attempt: message.GetDeliveryAttempt(), At: time.Now().UnixMilli(), Due: due})
}

func send() {
	producer, err := sdk.NewProducer(configuration(), sdk.WithTopics(topic),
		sdk.WithTransactionChecker(&sdk.TransactionChecker{Check: func(message *sdk.MessageView) sdk.TransactionResolution {
			say(report{Event: "checked", Number: numberOf(message)})
			return sdk.COMMIT
		}}))
	check(err)
	check(producer.Start())
	first := number("first", 0)
	for i := first; i < first+count; i++ {
		for err := sendOne(producer, i); err != nil; err = sendOne(producer, i) {
			if options["retry"] == "" {
				check(err)
			}
			say(report{Event: "warned", Error: err.Error()})
			time.Sleep(retryPause)
		}
		time.Sleep(time.Duration(number("every", 0)) * time.Millisecond)
	}
	say(report{Event: "sent"})
	if options["kind"] == "transaction" {
		_, _ = io.ReadAll(os.Stdin)
	}
	check(producer.GracefulStop())
	say(report{Event: "done", Count: count})
}

func sendOne(producer sdk.Producer, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if options["kind"] == "transaction" {
		transaction := producer.BeginTransaction()
		if _, err := producer.SendWithTransaction(ctx, message(i), transaction); err != nil {
			return err
		}
		switch i % 3 {
		case 0:
			return transaction.Commit()
		case 1:
			return transaction.RollBack()
		}
		return nil
	}
	receipts, err := producer.Send(ctx, message(i))
	if err == nil && options["kind"] == "recall" && i%2 == 1 {
		_, err = producer.Recall(ctx, topic, receipts[0].RecallHandle)
	}
	return err
}

func subscriptions() map[string]*sdk.FilterExpression {
	wanted := sdk.SUB_ALL
	if options["sql"] != "" {
		wanted = sdk.NewFilterExpressionWithType(options["sql"], sdk.SQL92)
	} else if options["tags"] != "" {
		wanted = sdk.NewFilterExpression(options["tags"])
	}
	return map[string]*sdk.FilterExpression{topic: wanted}
}

func push() {
	failures := int32(number("fail", 0))
	consumer, err := sdk.NewPushConsumer(configuration(),
		sdk.WithPushAwaitDuration(5*time.Second),
		sdk.WithPushSubscriptionExpressions(subscriptions()),
		sdk.WithPushMessageListener(&sdk.FuncMessageListener{Consume: func(message *sdk.MessageView) sdk.ConsumerResult {
			sayReceived(message)
			if message.GetDeliveryAttempt() <= failures {
				return sdk.FAILURE
			}
			return sdk.SUCCESS
		}}))
	check(err)
	check(consumer.Start())
	say(report{Event: "ready"})
	_, _ = io.ReadAll(os.Stdin)
	check(consumer.GracefulStop())
	say(report{Event: "done"})
}

func simple() {
	consumer, err := sdk.NewSimpleConsumer(configuration(), sdk.WithSimpleAwaitDuration(5*time.Second),
		sdk.WithSimpleSubscriptionExpressions(subscriptions()))
	check(err)
	check(consumer.Start())
	say(report{Event: "ready"})
	done := map[int]bool{}
	for len(done) < count {
		if err := take(consumer, done); err != nil {
			say(report{Event: "warned", Error: err.Error()})
			time.Sleep(retryPause)
		}
	}
	check(consumer.GracefulStop())
	say(report{Event: "done", Count: len(done)})
}

// take acks what one request brings, but for what `change` and `forget` say.
func take(consumer sdk.SimpleConsumer, done map[int]bool) error {
	change := time.Duration(number("change", 0)) * time.Second
	invisible := time.Duration(number("invisible", 15)) * time.Second
	messages, err := consumer.Receive(context.Background(), 16, invisible)
	if err != nil {
		return err
	}
	for _, message := range messages {
		sayReceived(message)
		if change > 0 && message.GetDeliveryAttempt() == 1 {
			err = consumer.ChangeInvisibleDuration(message, change)
		} else if message.GetDeliveryAttempt() > int32(number("forget", 0)) {
			if err = consumer.Ack(context.Background(), message); err == nil {
				done[numberOf(message)] = true
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
