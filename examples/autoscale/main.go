// Command autoscale runs as many workers as the lag of their consumer asks for: what an autoscaler of a cluster does
// with pods (deploy/kubernetes/autoscaling), done here with goroutines.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	perWorker  = 10 // messages of lag for each worker
	maxWorkers = 4
)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	nc, err := nats.Connect(cmp.Or(os.Getenv("NATS_URL"), nats.DefaultURL), nats.MaxReconnects(-1))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name: "SCALED", Subjects: []string{"scaled.>"}, Retention: jetstream.WorkQueuePolicy,
	}); err != nil {
		return err
	}
	queue, err := js.CreateOrUpdateConsumer(ctx, "SCALED", jetstream.ConsumerConfig{
		Durable: "pool", AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return err
	}
	for i := range 60 {
		if _, err := js.Publish(ctx, "scaled.job", fmt.Append(nil, i)); err != nil {
			return err
		}
	}
	p := &pool{queue: queue}
	defer p.shrink(0)
	monitor := cmp.Or(os.Getenv("MONITOR_URL"), "http://127.0.0.1:8222")
	for {
		lag, err := lagOf(ctx, monitor, "$G", "SCALED", "pool")
		if err != nil {
			log.Print("the lag is not known, so nothing changes: ", err)
		} else if err := p.scale(min((lag+perWorker-1)/perWorker, maxWorkers)); err != nil {
			return err
		}
		fmt.Printf("lag %d, workers %d\n", lag, len(p.workers))
		if err == nil && lag == 0 {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// lagOf asks the gateway what a consumer has still to do.
func lagOf(ctx context.Context, monitor, account, stream, consumer string) (int, error) {
	url := fmt.Sprintf("%s/api/v1/lag/%s/%s/%s", monitor, account, stream, consumer)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK { // what is not known is not 0
		return 0, fmt.Errorf("%s: %s", resp.Status, body)
	}
	var figures struct{ Lag int }
	err = json.Unmarshal(body, &figures)
	return figures.Lag, err
}

// pool is the workers that run.
type pool struct {
	queue   jetstream.Consumer
	workers []jetstream.ConsumeContext
}

// shrink stops workers until there are no more than n. One that stops finishes what it has.
func (p *pool) shrink(n int) {
	for len(p.workers) > n {
		last := len(p.workers) - 1
		p.workers[last].Drain()
		<-p.workers[last].Closed()
		p.workers = p.workers[:last]
	}
}

// scale starts or stops workers until there are n.
func (p *pool) scale(n int) error {
	p.shrink(n)
	for len(p.workers) < n {
		w, err := p.queue.Consume(func(m jetstream.Msg) {
			time.Sleep(20 * time.Millisecond) // work
			if err := m.Ack(); err != nil {
				log.Print(err)
			}
		}, jetstream.PullMaxMessages(2))
		if err != nil {
			return err
		}
		p.workers = append(p.workers, w)
	}
	return nil
}
