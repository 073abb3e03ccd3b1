// driver send|push|pull|repeat NAMESRV TOPIC COUNT [name=value ...], see drivers.py.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const name = "日本 é 😀"
const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

var (
	nameServers primitive.NamesrvAddr
	topic       string
	count       int
	options     = map[string]string{}
	printing    sync.Mutex
	agesLock    sync.Mutex
	ages        []int64
	enough      int32 // 1 when pulls may fail because the consumer is shut down
)

type report struct {
	Event  string `json:"event"`
	Number int    `json:"number"`
	Digest string `json:"digest,omitempty"`
	Queue  int    `json:"queue"`
	Offset int64  `json:"offset"`
	Times  int32  `json:"times"`
	Age    int64  `json:"age"`
	Count  int    `json:"count"`
	P50    int64  `json:"p50_ns"`
	P99    int64  `json:"p99_ns"`
	Error  string `json:"error,omitempty"`
}

func main() {
	rlog.SetLogLevel("error")
	rlog.SetOutputPath(os.Getenv("HOME") + "/go-client.log")
	nameServers = primitive.NamesrvAddr{os.Args[2]}
	topic = os.Args[3]
	count, _ = strconv.Atoi(os.Args[4])
	for _, option := range os.Args[5:] {
		key, value, _ := strings.Cut(option, "=")
		options[key] = value
	}
	switch os.Args[1] {
	case "send":
		send()
	case "push":
		push()
	case "pull":
		pull()
	case "repeat":
		repeat()
	}
}

func text(key, otherwise string) string {
	if value, ok := options[key]; ok {
		return value
	}
	return otherwise
}

func number(key string, otherwise int) int {
	value, err := strconv.Atoi(text(key, ""))
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
	}
}

func bodyOf(i, size int) []byte {
	body := []byte(fmt.Sprintf("message %d 日本語 é 😀 %s", i, strings.Repeat("x", i%200)))
	for state := uint32(i); len(body) < size; {
		state = (state*1103515245 + 12345) & 0x7fffffff
		body = append(body, letters[(state>>16)&63])
	}
	return body
}

func message(i int) *primitive.Message {
	made := primitive.NewMessage(topic, bodyOf(i, number("size", 0)))
	made.WithTag(fmt.Sprintf("Tag%d", i%3)).WithKeys([]string{fmt.Sprintf("Key%d", i)})
	made.WithProperty("number", strconv.Itoa(i))
	made.WithProperty("name", name)
	if level := number("delay", 0); level > 0 {
		made.WithDelayTimeLevel(level)
	}
	return made
}

func numberOf(message *primitive.Message) int {
	i, _ := strconv.Atoi(message.GetProperty("number"))
	return i
}

func digestOf(message *primitive.Message) string {
	digest := sha256.New()
	digest.Write(message.Body)
	for _, part := range []string{message.GetTags(), strings.TrimSpace(message.GetKeys()),
		message.GetProperty("number"), message.GetProperty("name")} {
		digest.Write([]byte{0})
		digest.Write([]byte(part))
	}
	return hex.EncodeToString(digest.Sum(nil))
}

// pace is the number in the file of the option pace: 0 without the file, -1 if it is empty.
func pace() int {
	content, err := os.ReadFile(text("pace", ""))
	if err != nil {
		return 0
	}
	trimmed := strings.TrimSpace(string(content))
	if trimmed == "" {
		return -1
	}
	value, err := strconv.Atoi(trimmed)
	check(err)
	return value
}

func work() {
	for pace() < 0 {
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(time.Duration(pace()) * time.Millisecond)
}

// receive reports a message, or keeps how long after its sender's clock it came.
func receive(message *primitive.MessageExt) {
	work()
	if text("timed", "") == "" {
		sayReceived(message)
		return
	}
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0) // monotonic
	age := now.Nano() - int64(binary.BigEndian.Uint64(message.Body))
	agesLock.Lock()
	defer agesLock.Unlock()
	ages = append(ages, age)
}

func sayTimes() {
	agesLock.Lock()
	defer agesLock.Unlock()
	done := report{Event: "done", Count: len(ages)}
	if first := number("timed", 0); len(ages) > first {
		timed := ages[first:]
		sort.Slice(timed, func(i, j int) bool { return timed[i] < timed[j] })
		done.P50, done.P99 = timed[len(timed)/2], timed[len(timed)*99/100]
	}
	say(done)
}

func sayReceived(message *primitive.MessageExt) {
	say(report{Event: "received", Number: numberOf(&message.Message), Digest: digestOf(&message.Message),
		Queue: message.Queue.QueueId, Offset: message.QueueOffset, Times: message.ReconsumeTimes,
		Age: time.Now().UnixMilli() - message.BornTimestamp})
}

// transactions commits one of three, rolls the next back, and tells of the third when asked.
type transactions struct{}

func (transactions) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	return []primitive.LocalTransactionState{primitive.CommitMessageState, primitive.RollbackMessageState,
		primitive.UnknowState}[numberOf(message)%3]
}

func (transactions) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	i := numberOf(&message.Message)
	say(report{Event: "checked", Number: i})
	if pace() < 0 {
		return primitive.UnknowState
	}
	if i%3 == 1 {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func sendInTransactions() {
	p, err := rocketmq.NewTransactionProducer(transactions{},
		producer.WithGroupName(text("group", "interop-transactions")),
		producer.WithNameServer(nameServers),
		producer.WithSendMsgTimeout(10*time.Second),
	)
	check(err)
	check(p.Start())
	first, sent := number("first", 0), 0
	for i := first; i < first+count; i++ {
		result, err := p.SendMessageInTransaction(context.Background(), message(i))
		check(err)
		if err == nil && result.Status == primitive.SendOK {
			sent++
		}
	}
	say(report{Event: "sent"})
	_, _ = io.ReadAll(os.Stdin)
	check(p.Shutdown())
	say(report{Event: "done", Count: sent})
}

func send() {
	if text("mode", "sync") == "transaction" {
		sendInTransactions()
		return
	}
	selector := producer.NewRoundRobinQueueSelector()
	if text("mode", "sync") == "orderly" {
		selector = producer.NewManualQueueSelector()
	}
	p, err := rocketmq.NewProducer(
		producer.WithGroupName("interop-producer"),
		producer.WithNameServer(nameServers),
		producer.WithSendMsgTimeout(10*time.Second),
		producer.WithQueueSelector(selector),
		producer.WithNamespace(text("namespace", "")),
	)
	check(err)
	check(p.Start())
	first, sent := number("first", 0), int64(0)
	ctx := context.Background()
	switch text("mode", "sync") {
	case "sync":
		for i := first; i < first+count; i++ {
			note(p, &sent, message(i))
			time.Sleep(time.Duration(number("pause", 0)) * time.Millisecond)
		}
	case "async":
		var waiting sync.WaitGroup
		for i := first; i < first+count; i++ {
			waiting.Add(1)
			err := p.SendAsync(ctx, func(_ context.Context, result *primitive.SendResult, err error) {
				check(err)
				if err == nil && result.Status == primitive.SendOK {
					atomic.AddInt64(&sent, 1)
				}
				waiting.Done()
			}, message(i))
			check(err)
		}
		waiting.Wait()
	case "oneway":
		for i := first; i < first+count; i++ {
			check(p.SendOneWay(ctx, message(i)))
			sent++
		}
		time.Sleep(time.Second)
	case "batch":
		for i := first; i < first+count; i += 10 {
			var batch []*primitive.Message
			for j := i; j < i+10 && j < first+count; j++ {
				batch = append(batch, message(j))
			}
			note(p, &sent, batch...)
		}
	case "orderly":
		for i := first; i < first+count; i++ {
			made := message(i)
			made.Queue = &primitive.MessageQueue{Topic: topic, BrokerName: text("broker", ""),
				QueueId: i % number("queues", 4)}
			note(p, &sent, made)
			time.Sleep(time.Duration(number("pause", 0)) * time.Millisecond)
		}
	}
	check(p.Shutdown())
	say(report{Event: "done", Count: int(sent)})
}

func note(p rocketmq.Producer, sent *int64, messages ...*primitive.Message) {
	result, err := p.SendSync(context.Background(), messages...)
	check(err)
	if err == nil && result.Status == primitive.SendOK {
		*sent += int64(len(messages))
	}
}

func push() {
	model := consumer.Clustering
	if text("model", "CLUSTERING") == "BROADCASTING" {
		model = consumer.BroadCasting
	}
	isOrdered := text("order", "false") == "true"
	c, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(text("group", "interop")),
		consumer.WithInstance(text("instance", "one")),
		consumer.WithNameServer(nameServers),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerModel(model),
		consumer.WithNamespace(text("namespace", "")),
		consumer.WithConsumerOrder(isOrdered),
		consumer.WithMaxReconsumeTimes(int32(number("max", -1))),
		consumer.WithSuspendCurrentQueueTimeMillis(100*time.Millisecond),
		consumer.WithConsumeGoroutineNums(number("threads", 20)),
	)
	check(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: text("tags", "*")}
	if sql, ok := options["sql"]; ok {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: sql}
	}
	failures := int32(number("fail", 0))
	check(c.Subscribe(topic, selector, func(_ context.Context, messages ...*primitive.MessageExt) (
		consumer.ConsumeResult, error) {
		for _, each := range messages {
			receive(each)
		}
		if messages[0].ReconsumeTimes >= failures {
			return consumer.ConsumeSuccess, nil
		}
		if isOrdered {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeRetryLater, nil
	}))
	check(c.Start())
	say(report{Event: "ready"})
	_, _ = io.ReadAll(os.Stdin)
	check(c.Shutdown())
	sayTimes()
}

func pull() {
	c, err := rocketmq.NewPullConsumer(
		consumer.WithGroupName(text("group", "interop")),
		consumer.WithNameServer(nameServers),
	)
	check(err)
	check(c.Subscribe(topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	check(c.Start())
	received := make(chan *primitive.MessageExt)
	for i := 0; i < number("queues", 4); i++ {
		go pullQueue(c, i, received)
	}
	for i := 0; i < count; i++ {
		sayReceived(<-received)
	}
	atomic.StoreInt32(&enough, 1)
	check(c.Shutdown())
	say(report{Event: "done", Count: count})
}

// pullQueue reads one queue for as long as anybody wants its messages.
func pullQueue(c rocketmq.PullConsumer, id int, received chan<- *primitive.MessageExt) {
	queue := &primitive.MessageQueue{Topic: topic, BrokerName: text("broker", ""), QueueId: id}
	for offset := int64(number("offset", 0)); ; {
		result, err := c.PullFrom(context.Background(), queue, offset, 16)
		if err != nil {
			if atomic.LoadInt32(&enough) == 0 {
				check(err)
			}
			return
		}
		if result.Status != primitive.PullFound {
			continue
		}
		for _, each := range result.GetMessageExts() {
			each.Queue = queue
			received <- each
		}
		offset = result.NextBeginOffset
	}
}
