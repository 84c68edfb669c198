package main

import (
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

var errTimeout = errors.New("not all messages arrived in 60 s")

// corePublish publishes from one connection, to nobody, until the server has read everything.
func corePublish(url string, p params) (time.Duration, int, error) {
	nc, err := nats.Connect(url)
	if err != nil {
		return 0, 0, err
	}
	defer nc.Close()
	start := time.Now()
	if err := publishAll(nc, p); err != nil {
		return 0, 0, err
	}
	return time.Since(start), p.msgs, nil
}

// publishAll publishes the case's messages and waits until the server has read them.
func publishAll(nc *nats.Conn, p params) error {
	data := make([]byte, p.size)
	for range p.msgs {
		if err := nc.Publish("bench.core", data); err != nil {
			return err
		}
	}
	return nc.FlushTimeout(time.Minute)
}

// fanOut publishes from one connection to subs subscribers on connections of their own, until each has everything. The
// rate counts messages published.
func fanOut(subs int) func(url string, p params) (time.Duration, int, error) {
	return func(url string, p params) (time.Duration, int, error) {
		var all sync.WaitGroup
		for range subs {
			nc, err := nats.Connect(url)
			if err != nil {
				return 0, 0, err
			}
			defer nc.Close()
			all.Add(1)
			if err := countTo(nc, p.msgs, all.Done); err != nil {
				return 0, 0, err
			}
		}
		nc, err := nats.Connect(url)
		if err != nil {
			return 0, 0, err
		}
		defer nc.Close()
		start := time.Now()
		if err := publishAll(nc, p); err != nil {
			return 0, 0, err
		}
		if !waitTimeout(&all) {
			return 0, 0, errTimeout
		}
		return time.Since(start), p.msgs, nil
	}
}

// countTo calls done when n messages have arrived.
func countTo(nc *nats.Conn, n int, done func()) error {
	got := 0 // only the subscription's own goroutine counts
	sub, err := nc.Subscribe("bench.core", func(*nats.Msg) {
		if got++; got == n {
			done()
		}
	})
	if err != nil {
		return err
	}
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	return nc.Flush()
}

func waitTimeout(wg *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
		return true
	case <-time.After(time.Minute):
		return false
	}
}
