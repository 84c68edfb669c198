// Command feed follows a stream by HTTP alone: server-sent events, which need no NATS library. It drops its connection
// in the middle and goes on behind the last event. With -page it serves page.html, which follows the same stream in a
// browser.
package main

import (
	"bufio"
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

//go:embed page.html
var page string

func main() {
	pages := flag.String("page", "", "serve a page that follows the stream, as 127.0.0.1:8000, and publish to it")
	flag.Parse()
	if err := run(context.Background(), *pages); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, pages string) error {
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
		Name: "TICKS", Subjects: []string{"ticks.>"}, MaxMsgs: 1000,
	}); err != nil {
		return err
	}
	if pages != "" {
		return servePage(ctx, js, pages)
	}
	var first uint64
	for i := range 5 {
		ack, err := js.Publish(ctx, "ticks.a", fmt.Appendf(nil, "tick %d", i+1))
		if err != nil {
			return err
		}
		first = cmp.Or(first, ack.Sequence)
	}
	url := cmp.Or(os.Getenv("MONITOR_URL"), "http://127.0.0.1:8222") + "/feed/$G/TICKS?filter=ticks.*"
	last := fmt.Sprint(first - 1)
	for _, n := range []int{2, 3} {
		if last, err = follow(ctx, url, last, n); err != nil {
			return err
		}
		fmt.Println("the connection is gone")
	}
	return nil
}

// follow prints n messages that come behind the event last, and returns the id of the last of them.
func follow(ctx context.Context, url, last string, n int) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return last, err
	}
	req.Header.Set("Last-Event-ID", last)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return last, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return last, fmt.Errorf("%s: %s", resp.Status, text)
	}
	var id, name string
	var data []string
	for in := bufio.NewScanner(resp.Body); in.Scan(); {
		switch field, value, _ := strings.Cut(in.Text(), ": "); field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = append(data, value)
		case "": // the end of an event
			if name != "" {
				return last, fmt.Errorf("%s: %s", name, strings.Join(data, "\n"))
			}
			if data == nil {
				continue
			}
			fmt.Printf("event: %s\n", strings.Join(data, "\n"))
			if last, data = id, nil; n == 1 {
				return last, nil
			}
			n--
		}
	}
	return last, errors.New("the feed ended")
}

// servePage publishes a message each second, and serves the page that shows them.
func servePage(ctx context.Context, js jetstream.JetStream, addr string) error {
	go func() {
		for i := 1; ; i++ {
			if _, err := js.Publish(ctx, "ticks.a", fmt.Appendf(nil, "tick %d", i)); err != nil {
				log.Print(err)
			}
			time.Sleep(time.Second)
		}
	}()
	log.Printf("open http://%s", addr)
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, page)
	}))
}
