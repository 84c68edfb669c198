package consumer

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/noetl/ehdb-gateway/jetstreamapi/jsapi"
)

var rewrite = flag.Bool("rewrite", false, "write what the scripts print into them")

// TestScripts runs testdata/*.txt. A script is blocks of a command, a line of dashes, and what the machine asked for
// and its state afterwards. See run for the commands; -rewrite writes the outputs anew.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, f := range files {
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) { runScript(t, f) })
	}
}

func runScript(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t, newLog(t))
	var result strings.Builder
	for i, block := range strings.Split(strings.TrimSpace(string(text)), "\n\n") {
		var comment, command string
		head, body, _ := strings.Cut(block, "\n----")
		for line := range strings.SplitSeq(head, "\n") {
			if strings.HasPrefix(line, "#") {
				comment += line + "\n"
			} else {
				command = line
			}
		}
		want := strings.TrimPrefix(body, "\n")
		got := strings.TrimRight(h.run(command), "\n")
		if got != want && !*rewrite {
			t.Fatalf("%s, block %d: %s\n got:\n%s\nwant:\n%s", file, i+1, command, got, want)
		}
		fmt.Fprintf(&result, "%s%s\n----\n%s\n\n", comment, command, got)
	}
	if *rewrite {
		if err := os.WriteFile(file, []byte(strings.TrimRight(result.String(), "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// run executes one command:
//
//	new {config}             the consumer; must come before what needs it
//	put subject [data] [n]   store n messages
//	delete seq, trimmed      the second tells the machine
//	listen subject, gone subject
//	pull inbox [body]
//	ack seq [body]           with the last ack subject of that message; ack! asks for a confirmation
//	lost seq subject         that delivery reached nobody
//	tick duration
//	update {config}, pause duration, reset seq, unpin, stop code text
//	answer [header lines]    to the open flow-control request
//	info
func (h *harness) run(line string) string {
	command, arg, _ := strings.Cut(line, " ")
	var event func(m *machine)
	note := ""
	switch command {
	case "new":
		var cfg server.ConsumerConfig
		if err := json.Unmarshal([]byte(arg), &cfg); err != nil {
			h.t.Fatal(err)
		}
		if err := h.create(cfg); err != nil {
			return err.Description
		}
	case "put":
		h.runPut(strings.Fields(arg))
	case "delete":
		h.remove(number(h.t, arg))
	case "listen":
		h.listen(arg)
		event = func(m *machine) { m.interest(h.now) }
	case "gone":
		h.client.Unsubscribe(arg, 0)
		event = func(m *machine) { m.interest(h.now) }
	case "tick":
		h.tick(arg)
	case "info":
		return h.runInfo()
	default:
		event, note = h.runEvent(command, arg)
	}
	if h.m == nil {
		return ""
	}
	out := h.step(event)
	return note + out.print() + h.state()
}

// runEvent makes the event of a command that only concerns the machine.
func (h *harness) runEvent(command, arg string) (event func(m *machine), note string) {
	switch command {
	case "pull":
		inbox, body, _ := strings.Cut(arg, " ")
		return func(m *machine) { m.pull(h.now, []byte(inbox), []byte(body)) }, ""
	case "ack", "ack!":
		seq, body, _ := strings.Cut(arg, " ")
		n := number(h.t, seq)
		id, ok := h.acks[n]
		if !ok {
			id = AckID{1, n, n, 0, 0}
		}
		reply := ""
		if command == "ack!" {
			reply = "confirm"
		}
		kind, a := jsapi.ParseAckBody([]byte(body))
		return func(m *machine) { m.ack(h.now, &id, kind, a, []byte(reply)) }, ""
	case "answer":
		header := ""
		if arg != "" {
			header = "NATS/1.0\r\n" + strings.ReplaceAll(arg, "; ", "\r\n") + "\r\n\r\n"
		}
		token := h.m.push.question[strings.LastIndexByte(h.m.push.question, '.')+1:]
		return func(m *machine) { m.answered(h.now, []byte(token), []byte(header)) }, ""
	case "pause":
		d, err := time.ParseDuration(arg)
		if err != nil {
			h.t.Fatal(err)
		}
		return func(m *machine) { m.pause(h.now, h.now+int64(d)) }, ""
	case "lost":
		seq, inbox, _ := strings.Cut(arg, " ")
		return func(m *machine) { m.undelivered(h.now, number(h.t, seq), []byte(inbox)) }, ""
	case "buried", "not-buried": // what the shell says of the letters with these sequences
		var list []dead
		for f := range strings.FieldsSeq(arg) {
			list = append(list, dead{seq: number(h.t, f), count: 9, why: reasonTerminated, text: "as told"})
		}
		if command == "not-buried" {
			return func(m *machine) { m.notBuried(h.now, list) }, ""
		}
		h.changes = append(h.changes, forgetAll(list, h.m.led.last.stream))
		return func(m *machine) { m.buried(h.now, list) }, ""
	case "trimmed":
		return func(m *machine) { m.prune(h.now) }, ""
	case "unpin":
		return func(m *machine) { m.unpin("admin") }, ""
	case "stop":
		code, text, _ := strings.Cut(arg, " ")
		return func(m *machine) { m.stop(int(number(h.t, code)), text) }, ""
	case "reset":
		seq, err := h.m.reset(number(h.t, arg), 0)
		return nil, fmt.Sprintf("reset to %d, error %v\n", seq, err)
	case "update":
		return nil, h.runUpdate(arg)
	}
	h.t.Fatalf("unknown command %q", command)
	return nil, ""
}

func (h *harness) runUpdate(arg string) string {
	cfg := h.m.set.cfg
	if err := json.Unmarshal([]byte(arg), &cfg); err != nil {
		h.t.Fatal(err)
	}
	if err := CheckUpdate(&h.m.set.cfg, &cfg); err != nil {
		return fmt.Sprintf("%d %s\n", err.ErrCode, err.Description)
	}
	if err := h.m.update(h.now, newSettings("S", "C", cfg, 1000, 0)); err != nil {
		h.t.Fatal(err)
	}
	h.changes = [][]byte{h.m.checkpoint(nil)} // a change of the configuration moves deadlines
	h.m.log.swap(nil)
	return ""
}

func (h *harness) runPut(args []string) {
	n, data := uint64(1), ""
	if len(args) > 1 {
		data = args[1]
	}
	if len(args) > 2 {
		n = number(h.t, args[2])
	}
	if data == "LARGE" {
		data = strings.Repeat("x", 300_000)
	}
	for range n {
		h.put(args[0], data)
	}
}

func (h *harness) tick(arg string) {
	d, err := time.ParseDuration(arg)
	if err != nil {
		h.t.Fatal(err)
	}
	h.now += int64(d)
}

func (h *harness) runInfo() string {
	i := h.m.info(time.Unix(0, h.now))
	return fmt.Sprintf(
		"delivered %d/%d ack_floor %d/%d ack_pending %d redelivered %d waiting %d pending %d bound %v paused %v %s\n",
		i.Delivered.Consumer, i.Delivered.Stream, i.AckFloor.Consumer, i.AckFloor.Stream,
		i.NumAckPending, i.NumRedelivered, i.NumWaiting, i.NumPending, i.PushBound, i.Paused, i.PauseRemaining)
}

func (h *harness) state() string {
	next := "-"
	if due := h.m.nextDue(); due != 0 {
		next = time.Duration(due - h.now).String()
	}
	return fmt.Sprintf("state: %s pending=%d waiting=%d next=%s\n", h.m.dump(), h.m.numPending(), h.m.wait.n, next)
}

func number(tb testing.TB, s string) uint64 {
	tb.Helper()
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		tb.Fatal(err)
	}
	return n
}
