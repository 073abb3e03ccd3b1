// hello sends a message and receives it.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const text = "hello from Go"

func main() {
	rlog.SetLogLevel("error")
	nameServers := primitive.NamesrvAddr{"127.0.0.1:9876"}
	if address := os.Getenv("NAMESRV_ADDR"); address != "" {
		nameServers = primitive.NamesrvAddr{address}
	}
	send(nameServers)
	receive(nameServers)
}

func send(nameServers primitive.NamesrvAddr) {
	client, err := rocketmq.NewProducer(
		producer.WithNameServer(nameServers),
		producer.WithGroupName("hello-go-producer"),
	)
	must(err)
	must(client.Start())
	message := primitive.NewMessage("Hello", []byte(text)).WithTag("greeting").WithKeys([]string{"hello-1"})
	result, err := client.SendSync(context.Background(), message)
	must(err)
	fmt.Println("sent", result.MsgID)
	must(client.Shutdown())
}

func receive(nameServers primitive.NamesrvAddr) {
	client, err := rocketmq.NewPushConsumer(
		consumer.WithNameServer(nameServers),
		consumer.WithGroupName("hello-go-consumer"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	must(err)
	arrived := make(chan struct{})
	var once sync.Once
	listen := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, each := range messages {
			if string(each.Body) == text {
				once.Do(func() {
					fmt.Println("received:", text)
					close(arrived)
				})
			}
		}
		return consumer.ConsumeSuccess, nil
	}
	must(client.Subscribe("Hello", consumer.MessageSelector{}, listen))
	must(client.Start())
	select {
	case <-arrived:
		must(client.Shutdown())
	case <-time.After(30 * time.Second):
		log.Fatal("no message came in 30 s")
	}
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
