package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/noetl/ehdb-gateway/storage"
	"github.com/noetl/ehdb-gateway/storage/inspect"
	"github.com/noetl/ehdb-gateway/storage/repair"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ctl runs ehdbctl storage with args.
func ctl(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"storage"}, args...), &out, &errs)
	return out.String(), errs.String(), code
}

// dataDir makes a data directory with a log of ten records.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ehdb")
	s, err := storage.Open(t.Context(), storage.Options{Dir: dir, Shards: 1, SegmentSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.CreateLog(storage.LogSpec{Shards: []storage.ShardID{0}, Name: "ACC/S"})
	if err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(10) {
		done := make(chan error, 1)
		r := storage.Record{
			Seq: seq + 1, Time: int64(seq+1) * int64(time.Second), Key: fmt.Appendf(nil, "orders.%d", seq%2),
			Header: []byte("NATS/1.0\r\nA: b\r\n\r\n"), Data: fmt.Appendf(nil, "data %d", seq+1),
		}
		if err := l.Append(&r, func(err error) { done <- err }); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Delete([]uint64{4}, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// damage changes a byte of a text in the only segment.
func damage(t *testing.T, dir, text string) {
	t.Helper()
	name := filepath.Join(dir, "wal", inspect.SegmentName(1))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte(text))
	if at < 0 {
		t.Fatalf("there is no %q", text)
	}
	b[at] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in:\n%s", w, got)
		}
	}
}

func TestVerifyAndRepair(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	out, errs, code := ctl(t, "verify", dir)
	if code != exitFine || errs != "" {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}
	wants(t, out, "1 shard, 1 segment", "OK: every checksum")
	if out, _, code := ctl(t, "repair", dir); code != exitFine || !strings.Contains(out, "nothing to repair") {
		t.Fatalf("exit code %d: %s", code, out)
	}

	damage(t, dir, "data 5")
	out, _, code = ctl(t, "verify", dir)
	if code != exitDamage {
		t.Fatalf("exit code %d: %s", code, out)
	}
	wants(t, out, "damage: wal/00000000000000000001.seg, offset ", "log 2 ACC/S, sequences 5 to 5, 1 record", "DAMAGED: 1 place",
		"remedy: ")
	out, _, code = ctl(t, "verify", "--json", dir)
	var v verdict
	if err := json.Unmarshal([]byte(strings.ReplaceAll(out, `"severity": "damage"`, `"severity": 2`)), &v); err != nil {
		t.Fatal(err, out)
	}
	if code != exitDamage || !v.Damaged || len(v.Findings) != 1 || v.Findings[0].Affected[0].First != 5 {
		t.Fatalf("exit code %d: %+v", code, v)
	}
	if out, errs, code := ctl(t, "dump", dir, "ACC/S"); code != exitDamage || !strings.Contains(out, "data 6") ||
		!strings.Contains(errs, "sequences 5 to 5") {
		t.Fatalf("exit code %d: %s%s", code, out, errs)
	}

	copied := filepath.Join(t.TempDir(), "new")
	out, _, code = ctl(t, "repair", "--out", copied, dir)
	if code != exitFine {
		t.Fatalf("exit code %d: %s", code, out)
	}
	wants(t, out, "sequences 5 to 5", "written again from what is whole", "OK: every checksum")
	if _, _, code := ctl(t, "verify", dir); code != exitDamage {
		t.Errorf("the original was repaired too: exit code %d", code)
	}
	if _, _, code := ctl(t, "repair", dir); code != exitFine {
		t.Errorf("exit code %d", code)
	}
	for _, d := range []string{dir, copied} {
		if out, _, code := ctl(t, "verify", d); code != exitFine {
			t.Errorf("exit code %d: %s", code, out)
		}
	}
}

func TestDump(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	for _, c := range []struct {
		args  []string
		lines int
		has   string
	}{
		{[]string{dir, "2"}, 9, `"seq":1,"time":"1970-01-01T00:00:01Z","key":"orders.0"`},
		{[]string{dir, "ACC/S", "--from", "3", "--to", "5"}, 2, `"seq":5`}, // 4 is deleted
		{[]string{dir, "ACC/S", "--key", "orders.1"}, 4, `"seq":2`},
		{[]string{dir, "ACC/S", "--key", "*.0"}, 5, `"seq":9`},
		{[]string{dir, "ACC/S", "--limit", "3"}, 3, `"seq":3`},
		{[]string{"--file", filepath.Join(dir, "META")}, 1, `"text":"1 shards"`},
		{[]string{"--file", filepath.Join(dir, "wal", inspect.SegmentName(1)), "--limit", "3"}, 3, `"kind":"log"`},
	} {
		out, errs, code := ctl(t, append([]string{"dump", "--json"}, c.args...)...)
		if n := strings.Count(out, "\n"); code != exitFine || n != c.lines || !strings.Contains(out, c.has) {
			t.Errorf("%v: exit code %d, %d lines: %s%s", c.args, code, n, out, errs)
		}
	}
	out, _, _ := ctl(t, "dump", dir, "2", "--limit", "1")
	wants(t, out, "1  1970-01-01T00:00:01Z  orders.0  6 B\n    NATS/1.0\n    A: b\n    data 1\n")
}

func TestStat(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	out, _, code := ctl(t, "stat", dir)
	if code != exitFine || strings.Contains(out, "catalog") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	wants(t, out, "10 %", "ACC/S", "segment")
	if out, _, _ := ctl(t, "stat", "--all", dir); !strings.Contains(out, "catalog") {
		t.Errorf("no catalog: %s", out)
	}
	out, _, _ = ctl(t, "stat", "--json", dir)
	var s summary
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	if l := s.Logs[1]; l.Messages != 9 || l.Dead != 1 || l.FirstSeq != 1 || l.LastSeq != 10 || l.Segments != 1 {
		t.Errorf("%+v", l)
	}
}

// TestUnusable: what cannot be done says why, with exit code 2, and makes nothing.
func TestUnusable(t *testing.T) {
	t.Parallel()
	dir, empty := dataDir(t), t.TempDir()
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"verify"}, "give one data directory"},
		{[]string{"verify", empty}, "neither META nor wal"},
		{[]string{"verify", filepath.Join(empty, "missing")}, "no such file"},
		{[]string{"repair", empty}, "neither META nor wal"},
		{[]string{"dump", dir}, "which log?"},
		{[]string{"dump", dir, "nobody"}, "there is no log nobody"},
		{[]string{"dump", "--file", os.DevNull}, "no file of a data directory"},
		{[]string{"verify", dir, "--key-file", filepath.Join(empty, "none")}, "no such file"},
		{[]string{"frobnicate"}, "unknown command"},
		{[]string{"repair", "--out", dir, dir}, "nothing to repair"},
	} {
		out, errs, code := ctl(t, c.args...)
		if !strings.Contains(out+errs, c.says) || code != exitFailed && c.says != "nothing to repair" {
			t.Errorf("%v: exit code %d: %s%s, want %q", c.args, code, out, errs, c.says)
		}
	}
	if names, err := os.ReadDir(empty); err != nil || len(names) > 0 {
		t.Errorf("%v was made (%v)", names, err)
	}
}

func TestMissingStreams(t *testing.T) {
	t.Parallel()
	entries := [][]byte{
		[]byte(`{"v":1,"streams":[{"account":"$G","stream":"A","log":2}],"consumers":[{"account":"$G","stream":"A","log":3}]}`),
		[]byte(`{"v":1,"account":"$G","stream":"B","log":4}`),
		[]byte(`{"v":1,"batch":[{"account":"$G","stream":"C","log":5}]}`),
		[]byte(`{"v":1,"account":"$G","stream":"D","removed":true}`),
		[]byte(`nonsense`),
	}
	got := missingStreams(entries, []repair.LogInfo{
		{ID: 2, Name: "$G/A"}, {ID: 4, Name: "$G/B"}, {ID: 5, Name: "$G/C"}, // known
		{ID: 6, Name: "$G/D"},        // removed
		{ID: 7, Name: "ACC/E"},       // lost
		{ID: 8, Name: "$G/A"},        // lost, and the name is taken
		{ID: 9, Name: "recovered-9"}, // lost, and so is its name
	})
	var names []string
	for _, e := range got {
		var r catalogRecord
		if err := json.Unmarshal(e.Entry, &r); err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%s/%s %s %d", r.Account, r.Stream, r.Config.Name, r.LogID))
	}
	want := []string{"ACC/E E 7", "$G/A-recovered-8 A-recovered-8 8", "$G/recovered-9 recovered-9 9"}
	if fmt.Sprint(names) != fmt.Sprint(want) {
		t.Fatalf("got %v, want %v", names, want)
	}
}
