package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var isEnded int32 // 1 when the input has ended

// repeat sends the same object until it is acknowledged, so it keeps its key.
func repeat() {
	p, err := rocketmq.NewProducer(
		producer.WithGroupName("interop-repeats"),
		producer.WithNameServer(nameServers),
		producer.WithRetry(5),
	)
	check(err)
	check(p.Start())
	var senders sync.WaitGroup
	for i := 0; i < count; i++ {
		senders.Add(1)
		go func(sender int) {
			defer senders.Done()
			for i := 0; atomic.LoadInt32(&isEnded) == 0; i++ {
				sendUntilAcknowledged(p, sender, i)
			}
		}(i)
	}
	_, _ = io.ReadAll(os.Stdin)
	atomic.StoreInt32(&isEnded, 1)
	senders.Wait()
	check(p.Shutdown())
}

func sendUntilAcknowledged(p rocketmq.Producer, sender, i int) {
	made := primitive.NewMessage(topic, []byte(fmt.Sprintf("%d:%d", sender, i)))
	for {
		result, err := p.SendSync(context.Background(), made)
		if err == nil && result.Status == primitive.SendOK {
			sayLine("acknowledged", sender, i, result.MessageQueue.QueueId, result.QueueOffset)
			return
		}
		sayLine("failed")
		time.Sleep(50 * time.Millisecond)
	}
}

func sayLine(words ...interface{}) {
	line := strings.TrimSpace(fmt.Sprintln(words...))
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(line)
}
